"""What is old enough goes, in steps and on every replica at once; what is needed stays."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest
from ingest_rows import column
from planting import plant_campaign, run
from sqlalchemy.ext.asyncio import AsyncEngine
from waiting import until

from services.ingest.group import StoredWebhook
from services.ingest.inbox import apply_once
from services.ingest.persist import GroupCommit
from services.sender.orchestration.pruner import drop_old_day, prune
from shared.db.engine import create_engine
from shared.db.partitions import ensure_days, partition_of

WEBHOOKS_DAYS, REJECTS_DAYS = 14, 30
PARTITIONS = """
    SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = 'webhook_groups'::regclass AND relname <> 'webhook_groups_rest' ORDER BY 1
"""


@pytest.fixture
async def fresh(new_database: Callable[[], Awaitable[str]]) -> AsyncGenerator[AsyncEngine]:
    """A database of the test's own: partitions outlive the emptying between tests."""
    engine = create_engine(await new_database())
    yield engine
    await engine.dispose()


async def add_day(engine: AsyncEngine, days_ago: int, *, pending: bool = False) -> str:
    """The partition of a day in the past, with a group in it."""
    day = (datetime.now(UTC) - timedelta(days=days_ago)).date()
    name = partition_of(day)
    bounds = f"FROM ('{day} 00:00+00') TO ('{day + timedelta(days=1)} 00:00+00')"
    await run(engine, f"CREATE TABLE {name} PARTITION OF webhook_groups FOR VALUES {bounds}")
    await add_group(engine, days_ago, pending=pending)
    assert await column(engine, f"SELECT count(*) FROM {name}") == [1]
    return name


async def add_group(engine: AsyncEngine, days_ago: float, *, pending: bool = False) -> None:
    statement = """
        WITH stored AS (
            INSERT INTO webhook_groups (received_at, webhooks, bodies)
            VALUES (now() - make_interval(secs => 86400 * :ago), 1, '') RETURNING id, received_at
        )
        INSERT INTO webhook_pending (purpose, group_id, received_at)
        SELECT 'apply', id, received_at FROM stored WHERE :pending
    """
    await run(engine, statement, ago=float(days_ago), pending=pending)


async def prune_now(engine: AsyncEngine) -> int:
    return await prune(engine, WEBHOOKS_DAYS, REJECTS_DAYS)


async def drop_all(engine: AsyncEngine) -> int:
    dropped = 0
    while await drop_old_day(engine, WEBHOOKS_DAYS):
        dropped += 1
    return dropped


async def test_days_that_are_old_are_dropped_the_oldest_first(fresh: AsyncEngine) -> None:
    async with fresh.begin() as connection:
        kept = set(await ensure_days(connection))
    kept |= {await add_day(fresh, ago) for ago in (13, 14)}
    old = [await add_day(fresh, ago) for ago in (40, 16, 15)]

    assert await drop_old_day(fresh, WEBHOOKS_DAYS) == 1
    assert set(await column(fresh, PARTITIONS)) == {*kept, *old[1:]}
    assert await drop_all(fresh) == 2

    assert set(await column(fresh, PARTITIONS)) == kept
    assert await column(fresh, "SELECT count(*) FROM webhook_groups") == [2]


async def test_a_day_that_is_still_to_be_applied_stays_until_it_is(fresh: AsyncEngine) -> None:
    day = await add_day(fresh, 20, pending=True)
    await add_day(fresh, 19)

    assert await drop_all(fresh) == 1
    assert await column(fresh, PARTITIONS) == [day]
    await apply_once(fresh, "an installation")
    assert await drop_all(fresh) == 1


async def test_replicas_at_once_drop_each_day_once(fresh: AsyncEngine) -> None:
    for ago in range(20, 26):
        await add_day(fresh, ago)

    async def some() -> int:
        return sum([await drop_old_day(fresh, WEBHOOKS_DAYS) for _ in range(6)])

    dropped = await asyncio.gather(*(some() for _ in range(5)))

    assert sum(dropped) + await drop_all(fresh) == 6
    assert await column(fresh, PARTITIONS) == []


async def test_behind_a_long_reader_it_gives_up_and_webhooks_go_on(fresh: AsyncEngine) -> None:
    day = await add_day(fresh, 20)
    webhook = StoredWebhook(datetime.now(UTC), "sha256=", b"{}")
    async with fresh.begin() as connection:
        await connection.exec_driver_sql("SELECT count(*) FROM webhook_groups")
        dropping = asyncio.create_task(drop_old_day(fresh, WEBHOOKS_DAYS))
        await until(lambda: column(fresh, WAITING), is_right=lambda counts: counts[0])
        await asyncio.wait_for(GroupCommit(fresh).store(webhook), 5)
        assert await dropping == 0

    assert await column(fresh, PARTITIONS) == [day]
    assert await drop_all(fresh) == 1
    assert await column(fresh, "SELECT count(*) FROM webhook_groups") == [1]


async def test_an_insert_under_way_is_not_lost(fresh: AsyncEngine) -> None:
    await add_day(fresh, 20)
    async with fresh.begin() as connection:
        await connection.exec_driver_sql(
            "INSERT INTO webhook_groups (webhooks, bodies) VALUES (1, '')"
        )
        dropping = asyncio.create_task(drop_old_day(fresh, WEBHOOKS_DAYS))
        await until(lambda: column(fresh, WAITING), is_right=lambda counts: counts[0])
    await dropping

    assert await drop_all(fresh) + dropping.result() == 1
    assert await column(fresh, "SELECT count(*) FROM webhook_groups") == [1]


WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'DROP TABLE%'
"""


async def test_the_default_partition_is_emptied_of_what_is_old(engine: AsyncEngine) -> None:
    for ago in (20, 15, 13, 0):
        await add_group(engine, ago)
    await add_group(engine, 20, pending=True)

    assert [await prune_now(engine) for _ in range(2)] == [2, 0]

    left = "SELECT round(extract(epoch FROM now() - received_at) / 86400)::int FROM webhook_groups"
    assert sorted(await column(engine, left)) == [0, 13, 20]


async def test_events_set_aside_go_and_parked_ones_stay(engine: AsyncEngine) -> None:
    statement = """
        INSERT INTO webhook_events (received_at, state, error, body)
        SELECT now() - make_interval(days => ago), state, 'why', ''
        FROM unnest(ARRAY[15, 13]) AS ago, unnest(ARRAY['poison', 'parked', 'foreign']) AS state
    """
    await run(engine, statement)

    assert [await prune_now(engine) for _ in range(2)] == [2, 0]

    left = "SELECT state FROM webhook_events ORDER BY received_at, state"
    assert await column(engine, left) == ["parked", "foreign", "parked", "poison"]


async def test_idempotency_keys_go_after_a_day(engine: AsyncEngine) -> None:
    statement = """
        INSERT INTO idempotency_keys (api_key_id, key, request_digest, created_at)
        SELECT 1, 'key ' || hours, '', now() - make_interval(hours => hours)
        FROM unnest(ARRAY[1, 23, 25, 200]) AS hours
    """
    await run(engine, statement)

    assert [await prune_now(engine) for _ in range(2)] == [2, 0]
    left = "SELECT key FROM idempotency_keys ORDER BY key"
    assert await column(engine, left) == ["key 1", "key 23"]


async def test_rejected_rows_go_some_time_after_the_end_of_their_campaign(
    engine: AsyncEngine,
) -> None:
    for state, ago in (("completed", 31), ("cancelled", 31), ("completed", 29), ("running", None)):
        ended = None if ago is None else datetime.now(UTC) - timedelta(days=ago)
        campaign = await plant_campaign(engine, state=state, ended_at=ended)
        statement = """
            WITH made AS (
                INSERT INTO uploads (campaign_id, state, invalid) VALUES (:campaign, 'done', 3)
                RETURNING id
            )
            INSERT INTO upload_rejects (upload_id, row_number, reason, raw)
            SELECT id, number, :why, 'raw' FROM made, generate_series(1, 3) AS number
        """
        await run(engine, statement, campaign=campaign, why=f"{state} {ago}")

    assert [await prune_now(engine) for _ in range(2)] == [6, 0]

    left = await column(engine, "SELECT DISTINCT reason FROM upload_rejects ORDER BY reason")
    assert left == ["completed 29", "running None"]
    assert await column(engine, "SELECT sum(invalid)::int FROM uploads") == [12]


async def test_five_replicas_at_once_prune_each_row_once(engine: AsyncEngine) -> None:
    statements = (
        """INSERT INTO idempotency_keys (api_key_id, key, request_digest, created_at)
           SELECT 1, n::text, '', now() - interval '2 days' FROM generate_series(1, 5000) AS n""",
        """INSERT INTO webhook_events (received_at, state, error, body)
           SELECT now() - interval '20 days', 'foreign', '', '' FROM generate_series(1, 5000)""",
        """INSERT INTO webhook_groups (received_at, webhooks, bodies)
           SELECT now() - interval '20 days', 1, '' FROM generate_series(1, 5000)""",
    )
    for statement in statements:
        await run(engine, statement)

    async def until_none() -> int:
        pruned = 0
        while found := await prune_now(engine):
            pruned += found
        return pruned

    found = await asyncio.gather(*(until_none() for _ in range(5)))

    assert sum(found) + await until_none() == 15_000
