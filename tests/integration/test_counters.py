"""Counts are exact at every moment, folded or not."""

import asyncio

from planting import (
    check_counters,
    claim_all,
    plant_campaign,
    plant_messages,
)
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.orchestration.folder import fold_once
from services.sender.pipeline.claim import ClaimedMessage
from services.sender.pipeline.outcome import Accepted, Failed, Outcome, Retry, Throttled, Unknown
from services.sender.pipeline.record import Result, record
from shared.db.counters import FOLD_SIZE, errors_met, fold, totals
from shared.domain.status import Status

OUTCOMES: tuple[Outcome, ...] = (
    Accepted("w"),
    Retry(131000, "meta"),
    Throttled("meta", 130429),
    Failed(131026, "meta"),
    Unknown("reset"),
)


async def many(engine: AsyncEngine, table: str) -> int:
    async with engine.connect() as connection:
        return int(await connection.scalar(text(f"SELECT count(*) FROM {table}")) or 0)


async def tell(engine: AsyncEngine, messages: list[ClaimedMessage]) -> None:
    """Each message meets the next kind of outcome."""
    results = [
        Result(message, OUTCOMES[place % len(OUTCOMES)]) for place, message in enumerate(messages)
    ]
    async with engine.begin() as connection:
        await record(connection, results)


async def test_every_status_is_counted_from_zero(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 3)

    async with engine.connect() as connection:
        found = await totals(connection, campaign)

    assert found == {**dict.fromkeys(Status, 0), Status.PENDING: 3}


async def test_folding_changes_no_total(engine: AsyncEngine) -> None:
    campaign, other = await plant_campaign(engine), await plant_campaign(engine)
    for one in (campaign, other):
        await plant_messages(engine, one, 20)
        await tell(engine, (await claim_all(engine, one)).messages)
    assert await many(engine, "campaign_counters") == 0

    assert not await fold_once(engine)

    assert await many(engine, "counter_deltas") == 0
    await check_counters(engine, campaign, other)
    await tell(engine, (await claim_all(engine, campaign)).messages)
    await check_counters(engine, campaign, other)
    await fold_once(engine)
    await check_counters(engine, campaign, other)
    assert not await fold_once(engine)


async def test_a_full_batch_says_that_there_is_more(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    async with engine.begin() as connection:
        await connection.execute(
            text("""
                INSERT INTO counter_deltas
                    (campaign_id, minute, status, error_code, entered, departed)
                SELECT :campaign, now(), 'pending', 0, 1, 0 FROM generate_series(1, :count)
            """),
            {"campaign": campaign, "count": FOLD_SIZE + 7},
        )

    assert await fold_once(engine)
    assert await many(engine, "counter_deltas") == 7
    assert not await fold_once(engine)
    async with engine.connect() as connection:
        assert (await totals(connection, campaign))[Status.PENDING] == FOLD_SIZE + 7


async def test_counts_hold_at_every_moment_while_rows_move_and_fold(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine, max_attempts=2)
    await plant_messages(engine, campaign, 400)
    working = 3

    async def work() -> None:
        nonlocal working
        while messages := (await claim_all(engine, campaign, most=25)).messages:
            await tell(engine, messages)
        working -= 1

    async def fold_all() -> None:
        while working:
            await fold_once(engine)

    async def look() -> None:
        while working:
            await check_counters(engine, campaign)

    tasks = [work(), work(), work(), fold_all(), fold_all(), look()]
    await asyncio.wait_for(asyncio.gather(*tasks), 60)

    await check_counters(engine, campaign)


async def test_a_fold_that_is_rolled_back_loses_nothing(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 5)
    async with engine.connect() as connection:
        assert await fold(connection) == 1
        # Another fold passes over what this one holds.
        assert not await asyncio.wait_for(fold_once(engine), 20)
        await connection.rollback()

    await check_counters(engine, campaign)
    await fold_once(engine)
    await check_counters(engine, campaign)


async def test_errors_are_counted_as_often_as_they_were_met(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    (one,) = await plant_messages(engine, campaign, status="claimed")
    for attempt, outcome in enumerate([OUTCOMES[2], OUTCOMES[2], OUTCOMES[3]], 1):
        message = ClaimedMessage(one, campaign, attempt, 0, "1", {}, 0.0)
        async with engine.begin() as connection:
            await record(connection, [Result(message, outcome)])
        await claim_all(engine, campaign)

    async with engine.connect() as connection:
        assert await errors_met(connection, campaign) == {130429: 2, 131026: 1}
    await check_counters(engine, campaign)
