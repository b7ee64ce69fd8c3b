"""The daily partitions of the inbox: made ahead, and dropped when they are old."""

from datetime import date, timedelta

import structlog
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

log = structlog.get_logger()

# Behind a long reader this would queue, and every insert behind it: better try again later.
_LOCK_TIMEOUT = text("SET LOCAL lock_timeout = '2s'")
_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtext('headrace partitions'))")
_TODAY = text("SELECT (now() AT TIME ZONE 'UTC')::date")
_EXISTS = text("SELECT to_regclass(:name) IS NOT NULL")

# The drop needs the whole table for itself, and every insert of a webhook waits behind it: better
# to give up soon and to try again some minutes later than to be polite to a long reader.
_DROP_TIMEOUT = text("SET LOCAL lock_timeout = '200ms'")
_NOBODY_ELSE = text("SELECT pg_try_advisory_xact_lock(hashtext('headrace partitions'))")

# A pending group is never added to an old day, so what nothing names now, nothing will name.
_OLDEST_DAY = text("""
SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent = 'webhook_groups'::regclass AND relname ~ '^webhook_groups_[0-9]{8}$'
  AND relname < to_char((now() AT TIME ZONE 'UTC')::date - CAST(:days AS integer),
                        '"webhook_groups_"YYYYMMDD')
  AND relname NOT IN (SELECT to_char(received_at AT TIME ZONE 'UTC', '"webhook_groups_"YYYYMMDD')
                      FROM webhook_pending)
ORDER BY relname LIMIT 1
""")

# In the order of ids, which is that of their age, the first old ones are at the front: no run reads
# more than its share.
_DELETE_REST = text("""
WITH first AS MATERIALIZED (
    SELECT id, received_at FROM webhook_groups_rest ORDER BY id LIMIT :most
), old AS MATERIALIZED (
    SELECT rest.id, rest.received_at FROM webhook_groups_rest AS rest
    JOIN first ON first.id = rest.id AND first.received_at = rest.received_at
    WHERE rest.received_at < now() - make_interval(days => :days)
      AND NOT EXISTS (SELECT FROM webhook_pending WHERE group_id = rest.id)
    FOR UPDATE OF rest SKIP LOCKED
)
DELETE FROM webhook_groups_rest AS rest USING old
WHERE rest.id = old.id AND rest.received_at = old.received_at
""")


async def ensure_days(connection: AsyncConnection, ahead: int = 3) -> list[str]:
    """Make the partitions of today and the days ahead that are missing; returns their names.

    Safe on several replicas at once.
    """
    await connection.execute(_LOCK_TIMEOUT)
    await connection.execute(_ONE_AT_A_TIME)
    today: date = (await connection.execute(_TODAY)).scalar_one()
    days = [today + timedelta(days=number) for number in range(ahead + 1)]
    return [partition_of(day) for day in days if await _make(connection, day)]


async def drop_oldest_day(connection: AsyncConnection, keep_days: int) -> str | None:
    """Drop the oldest day that is more than so many days ago and not needed; returns its name.

    Raises a `DBAPIError` of `LOCK_NOT_AVAILABLE` when somebody has been reading for too long.
    """
    await connection.execute(_DROP_TIMEOUT)
    if not await connection.scalar(_NOBODY_ELSE):
        return None
    name: str | None = await connection.scalar(_OLDEST_DAY, {"days": keep_days})
    if name is not None:
        await connection.execute(text(f"DROP TABLE {name}"))
    return name


async def delete_rest(connection: AsyncConnection, keep_days: int, most: int) -> int:
    """Delete what is as old from the default partition, some rows at a time; returns how many."""
    deleted = await connection.execute(_DELETE_REST, {"days": keep_days, "most": most})
    return deleted.rowcount


def partition_of(day: date) -> str:
    return f"webhook_groups_{day:%Y%m%d}"


async def _make(connection: AsyncConnection, day: date) -> bool:
    name = partition_of(day)
    if await connection.scalar(_EXISTS, {"name": name}):
        return False
    try:
        async with connection.begin_nested():
            await _attach(connection, name, day)
    except IntegrityError:
        # The default partition holds rows of that day already, so it keeps the day.
        log.warning("partition_left_to_default", partition=name)
        return False
    return True


async def _attach(connection: AsyncConnection, name: str, day: date) -> None:
    """Create first and attach then: inserts into the other days go on meanwhile."""
    await connection.execute(text(f"CREATE TABLE {name} (LIKE webhook_groups INCLUDING DEFAULTS)"))
    bounds = f"FROM ('{day} 00:00+00') TO ('{day + timedelta(days=1)} 00:00+00')"
    attach = f"ALTER TABLE webhook_groups ATTACH PARTITION {name} FOR VALUES {bounds}"
    await connection.execute(text(attach))
