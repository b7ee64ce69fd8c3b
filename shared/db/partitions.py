"""The daily partitions of the inbox: made ahead, so that a day is pruned by dropping its table."""

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


async def ensure_days(connection: AsyncConnection, ahead: int = 3) -> list[str]:
    """Make the partitions of today and the days ahead that are missing; returns their names.

    Safe on several replicas at once.
    """
    await connection.execute(_LOCK_TIMEOUT)
    await connection.execute(_ONE_AT_A_TIME)
    today: date = (await connection.execute(_TODAY)).scalar_one()
    days = [today + timedelta(days=number) for number in range(ahead + 1)]
    return [partition_of(day) for day in days if await _make(connection, day)]


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
