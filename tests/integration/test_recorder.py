"""The recorder: batches, bad values, a database that dies, a queue that is full."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest
from planting import (
    Past,
    check_counters,
    history,
    plant_campaign,
    plant_messages,
    rows,
    statuses,
)
from prometheus_client import REGISTRY
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from waiting import until

from services.cli.embedded import EmbeddedServers
from services.sender import metrics
from services.sender.pipeline.claim import ClaimedMessage
from services.sender.pipeline.outcome import Accepted, Failed, Outcome, Retry, Unknown
from services.sender.pipeline.record import Result
from services.sender.pipeline.recorder import CAPACITY, Recorder
from shared.db.engine import create_engine
from shared.db.migrations import upgrade
from shared.periodic import every


@asynccontextmanager
async def running(recorder: Recorder) -> AsyncGenerator[None]:
    task = asyncio.create_task(every(0.1, recorder.step, name="recorder"))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def recording(engine: AsyncEngine) -> AsyncGenerator[Recorder]:
    recorder = Recorder(engine)
    async with running(recorder):
        yield recorder


def result(campaign: int, message_id: int, outcome: Outcome, attempt: int = 1) -> Result:
    return Result(ClaimedMessage(message_id, campaign, attempt, 0, "1", {}, 0.0), outcome)


async def claimed(engine: AsyncEngine, count: int) -> tuple[int, list[int]]:
    campaign = await plant_campaign(engine)
    return campaign, await plant_messages(engine, campaign, count, status="claimed")


async def flushed(recorder: Recorder) -> None:
    await asyncio.wait_for(recorder.flush(), 30)
    assert recorder.waiting == 0


def batches() -> float:
    """How many batches have been gathered so far in this process."""
    return REGISTRY.get_sample_value("headrace_record_batch_rows_count") or 0


def faults() -> float:
    """How often the database did not answer so far in this process."""
    samples = [sample for metric in metrics.FAULTS.collect() for sample in metric.samples]
    mine = [
        one for one in samples if one.name.endswith("_total") and one.labels["part"] == "record"
    ]
    return float(sum(one.value for one in mine))


async def test_results_are_written_in_batches(engine: AsyncEngine) -> None:
    campaign, ids = await claimed(engine, 900)
    before = batches()
    async with recording(engine) as recorder:
        for one in ids:
            recorder.add(result(campaign, one, Accepted(f"w{one}")))
        await flushed(recorder)

    assert [row.wamid for row in await rows(engine, campaign)] == [f"w{one}" for one in ids]
    assert batches() - before <= 10
    await check_counters(engine, campaign)


async def test_two_results_of_one_message_are_both_told_in_order(engine: AsyncEngine) -> None:
    campaign, (one, other) = await claimed(engine, 2)
    async with recording(engine) as recorder:
        recorder.add(result(campaign, one, Unknown("reset")))
        recorder.add(result(campaign, other, Accepted("o")))
        recorder.add(result(campaign, one, Accepted("w")))
        await flushed(recorder)

    assert [row.wamid for row in await rows(engine, campaign)] == ["w", "o"]
    assert [past.outcome for past in (await history(engine, [one]))[one]] == ["unknown"]
    await check_counters(engine, campaign)


POISON: dict[str, Outcome] = {
    "NUL in the trace": Retry(131000, "meta", fbtrace_id="a\0b"),
    "NUL in an id": Accepted("a\0b"),
    "half an emoji": Failed(131026, "meta", "\ud83d"),
    "a code beyond int": Failed(2**31, "meta"),
}


@pytest.mark.parametrize("place", [0, 4, 8])
@pytest.mark.parametrize("poison", POISON.values(), ids=POISON.keys())
async def test_a_result_that_cannot_be_written_is_unknown_and_its_neighbours_are_written(
    engine: AsyncEngine, poison: Outcome, place: int
) -> None:
    campaign, ids = await claimed(engine, 9)
    async with recording(engine) as recorder:
        for number, one in enumerate(ids):
            outcome = poison if number == place else Accepted(f"w{one}")
            recorder.add(result(campaign, one, outcome))
        await flushed(recorder)

    found = await rows(engine, campaign)
    bad = found.pop(place)
    assert (bad.status, bad.reason, bad.attempt) == ("unknown", "unrecordable", 1)
    assert {row.status for row in found} == {"accepted"}
    assert (await history(engine, [bad.id]))[bad.id] == [
        Past(1, "unknown", None, None, "unrecordable", None)
    ]
    await check_counters(engine, campaign)


async def test_a_full_queue_holds_who_adds_and_loses_nothing(engine: AsyncEngine) -> None:
    campaign, ids = await claimed(engine, CAPACITY + 200)
    recorder = Recorder(engine)
    for one in ids[:CAPACITY]:
        await asyncio.wait_for(recorder.until_room(), 1)
        recorder.add(result(campaign, one, Accepted("w")))
    held = asyncio.create_task(recorder.until_room())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not held.done()
    # Who is on the wire already may still add.
    for one in ids[CAPACITY:]:
        recorder.add(result(campaign, one, Accepted("w")))
    async with running(recorder):
        await asyncio.wait_for(held, 30)
        await flushed(recorder)

    assert await statuses(engine, campaign) == {"accepted": CAPACITY + 200}


async def test_a_batch_that_fails_unexpectedly_is_written_by_the_next_step(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign, (one,) = await claimed(engine, 1)
    recorder = Recorder(engine)
    recorder.add(result(campaign, one, Accepted("w")))

    async def breaks(*_: object) -> int:
        raise LookupError

    with monkeypatch.context() as patched:
        patched.setattr("services.sender.pipeline.recorder.record", breaks)
        with pytest.raises(LookupError):
            await recorder.step()
    assert recorder.waiting == 1
    await recorder.step()

    assert recorder.waiting == 0
    assert await statuses(engine, campaign) == {"accepted": 1}


async def test_it_waits_for_a_connection_of_a_pool_in_use(engine: AsyncEngine) -> None:
    """The pool's own time-out is no error of the driver."""
    campaign, (one,) = await claimed(engine, 1)
    small = create_async_engine(engine.url, pool_size=1, max_overflow=0, pool_timeout=0.05)
    before = faults()
    async with small.connect() as held, recording(small) as recorder:
        await held.execute(text("SELECT 1"))
        recorder.add(result(campaign, one, Accepted("w")))
        await until(lambda: faults() > before, 20)
        await held.close()
        await flushed(recorder)
    await small.dispose()

    assert await statuses(engine, campaign) == {"accepted": 1}


async def test_results_wait_for_a_database_that_died(durable_servers: EmbeddedServers) -> None:
    url = durable_servers.database_url()
    await asyncio.to_thread(upgrade, url)
    engine = create_engine(url)
    campaign, ids = await claimed(engine, 50)
    async with recording(engine) as recorder:
        recorder.add(result(campaign, ids[0], Accepted("w")))
        await flushed(recorder)
        before = faults()
        durable_servers.kill_postgres()
        for one in ids[1:]:
            recorder.add(result(campaign, one, Accepted("w")))
        await until(lambda: faults() > before, 30)
        durable_servers.start_postgres()
        await flushed(recorder)

    assert await statuses(engine, campaign) == {"accepted": 50}
    await check_counters(engine, campaign)
    await engine.dispose()
