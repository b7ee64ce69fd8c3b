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
from sqlalchemy.ext.asyncio import AsyncEngine
from waiting import until

from services.cli.embedded import EmbeddedServers
from services.sender import metrics
from services.sender.pipeline.claim import ClaimedMessage
from services.sender.pipeline.outcome import Accepted, Failed, Outcome, Retry, Throttled, Unknown
from services.sender.pipeline.record import Result
from services.sender.pipeline.recorder import Recorder
from shared.db.engine import create_engine
from shared.db.migrations import upgrade


@asynccontextmanager
async def recording(engine: AsyncEngine) -> AsyncGenerator[Recorder]:
    recorder = Recorder(engine)
    running = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


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
            await recorder.put(result(campaign, one, Accepted(f"w{one}")))
        await flushed(recorder)

    assert [row.wamid for row in await rows(engine, campaign)] == [f"w{one}" for one in ids]
    assert batches() - before <= 10
    await check_counters(engine, campaign)


async def test_two_results_of_one_message_are_both_told_in_order(engine: AsyncEngine) -> None:
    campaign, (one, other) = await claimed(engine, 2)
    async with recording(engine) as recorder:
        await recorder.put(result(campaign, one, Unknown("reset")))
        await recorder.put(result(campaign, other, Accepted("o")))
        await recorder.put(result(campaign, one, Accepted("w")))
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
            await recorder.put(result(campaign, one, outcome))
        await flushed(recorder)

    found = await rows(engine, campaign)
    bad = found.pop(place)
    assert (bad.status, bad.reason, bad.attempt) == ("unknown", "unrecordable", 1)
    assert {row.status for row in found} == {"accepted"}
    assert (await history(engine, [bad.id]))[bad.id] == [
        Past(1, "unknown", None, None, "unrecordable", None)
    ]
    await check_counters(engine, campaign)


async def test_a_full_queue_holds_who_puts(engine: AsyncEngine) -> None:
    campaign, (one,) = await claimed(engine, 1)
    recorder = Recorder(engine)
    stale = result(campaign, one, Throttled("held", sent_nothing=True), attempt=99)
    while recorder.waiting < 5_000:
        await recorder.put(stale)
    last = asyncio.create_task(recorder.put(result(campaign, one, Accepted("w"))))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not last.done()
    assert recorder.waiting == 5_000
    last.cancel()


async def test_a_queue_that_was_full_takes_more_once_it_is_written(engine: AsyncEngine) -> None:
    campaign, ids = await claimed(engine, 5_200)
    recorder = Recorder(engine)

    async def put_all() -> None:
        for one in ids:
            await recorder.put(result(campaign, one, Accepted("w")))

    putting = asyncio.create_task(put_all())
    await until(lambda: recorder.waiting == 5_000, 20)
    running = asyncio.create_task(recorder.run())
    await asyncio.wait_for(putting, 30)
    await flushed(recorder)
    running.cancel()

    assert await statuses(engine, campaign) == {"accepted": 5_200}


async def test_results_wait_for_a_database_that_died(durable_servers: EmbeddedServers) -> None:
    url = durable_servers.database_url()
    await asyncio.to_thread(upgrade, url)
    engine = create_engine(url)
    campaign, ids = await claimed(engine, 50)
    async with recording(engine) as recorder:
        await recorder.put(result(campaign, ids[0], Accepted("w")))
        await flushed(recorder)
        before = faults()
        durable_servers.kill_postgres()
        for one in ids[1:]:
            await recorder.put(result(campaign, one, Accepted("w")))
        await until(lambda: faults() > before, 30)
        durable_servers.start_postgres()
        await flushed(recorder)

    assert await statuses(engine, campaign) == {"accepted": 50}
    await check_counters(engine, campaign)
    await engine.dispose()
