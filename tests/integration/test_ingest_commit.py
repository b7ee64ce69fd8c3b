"""The group commit: what is confirmed is committed, and each failure is its group's alone."""

import asyncio
from datetime import UTC, datetime

import pytest
from ingest_rows import column
from sqlalchemy import text
from waiting import until

from services.ingest.group import StoredWebhook, unpack
from services.ingest.persist import GroupCommit, NotStoredError
from shared.db.engine import create_engine


def webhook(body: bytes = b"{}") -> StoredWebhook:
    return StoredWebhook(datetime.now(UTC), "sha256=", body)


async def stored(engine) -> list[bytes]:
    packed = await column(engine, "SELECT bodies FROM webhook_groups ORDER BY id")
    return [one.body for group in packed for one in unpack(group)]


@pytest.fixture
async def held(engine):
    """Holds every insert back until it is released."""
    async with engine.connect() as connection:
        await connection.execute(text("LOCK TABLE webhook_pending IN EXCLUSIVE MODE"))
        yield connection
        await connection.rollback()


async def waits(engine) -> int:
    """How many statements wait for a lock."""
    statement = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    return (await column(engine, statement))[0]


async def test_what_came_while_writing_goes_in_one_row(engine, held):
    inbox = GroupCommit(engine)
    first = asyncio.create_task(inbox.store(webhook(b"0")))
    await until(lambda: waits(engine))
    others = [asyncio.create_task(inbox.store(webhook(b"%d" % n))) for n in range(1, 40)]
    await held.rollback()
    await asyncio.gather(first, *others)
    assert await column(engine, "SELECT webhooks FROM webhook_groups ORDER BY id") == [1, 39]
    assert await stored(engine) == [b"%d" % n for n in range(40)]
    assert await column(engine, "SELECT purpose FROM webhook_pending") == ["apply", "apply"]
    assert inbox.arrived.is_set()


async def test_who_goes_away_takes_nobody_along(engine, held):
    inbox = GroupCommit(engine)
    tasks = [asyncio.create_task(inbox.store(webhook(b"%d" % n))) for n in range(3)]
    await until(lambda: waits(engine))
    tasks[1].cancel()
    await held.rollback()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[::2] == [None, None]
    assert isinstance(results[1], asyncio.CancelledError)
    assert {b"0", b"2"} <= set(await stored(engine))


async def test_a_failing_insert_is_its_own_groups(engine, held):
    """The lock is given up by a cancelled statement: that group fails, the next one is stored."""
    inbox = GroupCommit(engine)
    first = asyncio.create_task(inbox.store(webhook(b"first")))
    await until(lambda: waits(engine))
    second = asyncio.create_task(inbox.store(webhook(b"second")))
    await held.execute(
        text(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
    )
    with pytest.raises(NotStoredError):
        await first
    await held.rollback()
    await second
    assert await stored(engine) == [b"second"]


async def test_without_a_database_nothing_is_confirmed(free_port):
    engine = create_engine(f"postgresql://nobody@127.0.0.1:{free_port()}/none")
    inbox = GroupCommit(engine)
    results = await asyncio.gather(
        *(inbox.store(webhook()) for _ in range(5)), return_exceptions=True
    )
    assert [type(result) for result in results] == [NotStoredError] * 5
    await engine.dispose()


@pytest.mark.parametrize(("limit", "value"), [("_MOST_WAITING", 3), ("_MOST_BYTES", 30)])
async def test_a_full_queue_refuses(engine, held, monkeypatch, limit, value):
    monkeypatch.setattr(f"services.ingest.persist.{limit}", value)
    inbox = GroupCommit(engine)
    first = asyncio.create_task(inbox.store(webhook(b"x" * 10)))
    await until(lambda: waits(engine))
    tasks = [asyncio.create_task(inbox.store(webhook(b"x" * 10))) for _ in range(5)]
    await until(lambda: sum(task.done() for task in tasks), is_right=lambda count: count == 2)
    await held.rollback()
    results = await asyncio.gather(first, *tasks, return_exceptions=True)
    assert [type(result) for result in results] == [type(None)] * 4 + [NotStoredError] * 2
    assert inbox.accepts


async def test_a_group_has_a_limit(engine, held, monkeypatch):
    monkeypatch.setattr("services.ingest.persist._MOST_IN_GROUP", 4)
    inbox = GroupCommit(engine)
    tasks = [asyncio.create_task(inbox.store(webhook())) for _ in range(10)]
    await until(lambda: waits(engine))
    await held.rollback()
    await asyncio.gather(*tasks)
    assert await column(engine, "SELECT webhooks FROM webhook_groups ORDER BY id") == [4, 4, 2]


async def test_closing_writes_what_waits_and_refuses_the_rest(engine, held):
    inbox = GroupCommit(engine)
    tasks = [asyncio.create_task(inbox.store(webhook(b"%d" % n))) for n in range(3)]
    await until(lambda: waits(engine))
    closing = asyncio.create_task(inbox.close())
    await until(lambda: not inbox.accepts)
    with pytest.raises(NotStoredError):
        await inbox.store(webhook(b"late"))
    await held.rollback()
    await closing
    assert all(task.done() for task in tasks)
    assert await stored(engine) == [b"0", b"1", b"2"]


async def test_a_large_group_keeps_its_bodies(engine):
    body = b"x" * 2**20
    await GroupCommit(engine).store(webhook(body))
    assert await stored(engine) == [body]
