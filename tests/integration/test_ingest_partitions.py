"""The daily partitions of the inbox: made ahead, by any number of replicas, whatever is there."""

import asyncio
from datetime import UTC, datetime

import asyncpg
import pytest
from ingest_rows import column
from waiting import until

from services.ingest.group import StoredWebhook
from services.ingest.persist import GroupCommit
from shared.db.engine import create_engine
from shared.db.partitions import ensure_days

PARTITIONS = """
    SELECT inhrelid::regclass::text FROM pg_inherits
    WHERE inhparent = 'webhook_groups'::regclass ORDER BY 1
"""


@pytest.fixture
async def fresh(new_database):
    """A database of the test's own: partitions outlive the emptying between tests."""
    engine = create_engine(await new_database())
    yield engine
    await engine.dispose()


async def ensure(engine, ahead=3):
    async with engine.begin() as connection:
        return await ensure_days(connection, ahead)


async def query(engine, statement):
    url = engine.url.set(drivername="postgresql").render_as_string()
    connection = await asyncpg.connect(url)
    try:
        return [row[0] for row in await connection.fetch(statement)]
    finally:
        await connection.close()


async def test_today_and_the_days_ahead_once(fresh):
    made = await ensure(fresh)
    assert len(made) == 4
    assert await ensure(fresh) == []
    assert len(await ensure(fresh, 5)) == 2
    assert set(made) < set(await query(fresh, PARTITIONS))


async def test_replicas_at_once(fresh):
    made = await asyncio.gather(*(ensure(fresh) for _ in range(5)))
    assert len([name for names in made for name in names]) == 4


async def test_a_day_that_the_default_has_stays_with_it(fresh):
    insert = "INSERT INTO webhook_groups (webhooks, bodies) VALUES (1, '') RETURNING id"
    await query(fresh, insert)
    made = await ensure(fresh)
    assert len(made) == 3
    await query(fresh, insert)
    assert await query(fresh, "SELECT count(*) FROM webhook_groups_rest") == [2]


async def test_rows_go_to_their_day(fresh):
    (today, *_) = await ensure(fresh)
    await query(fresh, "INSERT INTO webhook_groups (webhooks, bodies) VALUES (1, '') RETURNING id")
    assert await query(fresh, "SELECT tableoid::regclass::text FROM webhook_groups") == [today]
    assert await query(fresh, "SELECT id > 0 FROM webhook_groups") == [True]


async def test_a_partition_that_appears_while_a_webhook_is_stored(fresh):
    """The insert was routed to the default partition, which no longer takes the day."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    async with fresh.begin() as connection:
        (today, *_) = await ensure_days(connection)
        webhook = StoredWebhook(datetime.now(UTC), "sha256=", b"{}")
        storing = asyncio.create_task(GroupCommit(fresh).store(webhook))
        await until(lambda: column(fresh, waiting), is_right=lambda counts: counts[0])
    await storing
    assert await query(fresh, "SELECT tableoid::regclass::text FROM webhook_groups") == [today]
