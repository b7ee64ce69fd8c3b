"""What a dead process held becomes unknown, and nothing else."""

import asyncio

import pytest
from planting import (
    Past,
    check_counters,
    claim_all,
    history,
    one_row,
    plant_campaign,
    plant_messages,
    rows,
    run,
    statuses,
)
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.orchestration.reclaimer import reclaim
from services.sender.pipeline.outcome import Accepted, Retry, Throttled
from services.sender.pipeline.record import Result, record
from shared.db.counters import errors_met

LEASE_S = 90


async def test_a_claim_older_than_the_lease_becomes_unknown(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    (late,) = await plant_messages(engine, campaign, status="claimed", age=100, attempt=2, spent=1)
    await plant_messages(engine, campaign, status="claimed", age=30)
    before = (await rows(engine, campaign))[0]

    assert await reclaim(engine, LEASE_S) == 1

    row, fresh = await rows(engine, campaign)
    assert (row.id, row.status, row.reason) == (late, "unknown", "lease_expired")
    assert (row.attempt, row.spent, row.claimed_at) == (2, 1, before.claimed_at)
    assert fresh.status == "claimed"
    assert (await history(engine, [late]))[late] == [
        Past(2, "unknown", None, None, "lease_expired", None)
    ]
    await check_counters(engine, campaign)


async def test_again_finds_nothing(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 3, status="claimed", age=100)

    assert [await reclaim(engine, LEASE_S) for _ in range(2)] == [3, 0]


@pytest.mark.parametrize(
    "status", ["skipped", "pending", "unknown", "accepted", "sent", "failed", "delivered", "read"]
)
async def test_every_other_state_stays(engine: AsyncEngine, status: str) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 3, status=status, age=100)

    assert await reclaim(engine, LEASE_S) == 0
    assert await statuses(engine, campaign) == {status: 3}


@pytest.mark.parametrize(
    ("state", "reason"), [("running", None), ("paused", "operator"), ("cancelled", None)]
)
async def test_also_in_campaigns_that_stand_still(
    engine: AsyncEngine, state: str, reason: str | None
) -> None:
    campaign = await plant_campaign(engine, state=state, pause_reason=reason)
    await plant_messages(engine, campaign, status="claimed", age=100)

    assert await reclaim(engine, LEASE_S) == 1


async def test_two_at_once_share_the_rows(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 1_500, status="claimed", age=100)

    found = await asyncio.gather(*(reclaim(engine, LEASE_S) for _ in range(4)))
    while more := await reclaim(engine, LEASE_S):
        found.append(more)

    assert sum(found) == 1_500
    assert all(count <= 1_000 for count in found)
    assert await statuses(engine, campaign) == {"unknown": 1_500}
    await check_counters(engine, campaign)


async def test_a_row_that_a_recorder_has_in_hand_is_passed_over(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    ids = await plant_messages(engine, campaign, 2, status="claimed", age=100)
    async with engine.begin() as recorder:
        await recorder.execute(
            text("SELECT FROM messages WHERE id = :id FOR UPDATE"), {"id": ids[0]}
        )

        assert await asyncio.wait_for(reclaim(engine, LEASE_S), 20) == 1

    assert [row.status for row in await rows(engine, campaign)] == ["claimed", "unknown"]


async def test_the_late_result_of_a_slow_process_still_counts(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign)
    (message,) = (await claim_all(engine, campaign)).messages
    assert await reclaim(engine, 0) == 1

    async with engine.begin() as connection:
        await record(connection, [Result(message, Accepted("w"))])

    row = await one_row(engine, campaign)
    assert (row.status, row.wamid, row.spent) == ("accepted", "w", 1)
    await check_counters(engine, campaign)


async def test_what_a_slow_process_did_not_send_goes_back(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign)
    (message,) = (await claim_all(engine, campaign)).messages
    assert await reclaim(engine, 0) == 1

    async with engine.begin() as connection:
        await record(connection, [Result(message, Throttled("stale", sent_nothing=True))])

    row = await one_row(engine, campaign)
    assert (row.status, row.attempt) == ("pending", 2)
    await check_counters(engine, campaign)


async def test_an_error_that_was_met_before_is_not_met_again(engine: AsyncEngine) -> None:
    """The counts by code say how often Meta sent it, whatever becomes of the row later."""
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 2)
    refused = [
        Result(one, Retry(131016, "meta")) for one in (await claim_all(engine, campaign)).messages
    ]
    async with engine.begin() as connection:
        await record(connection, refused)
    await run(engine, "UPDATE messages SET due_at = now()")
    await claim_all(engine, campaign)

    assert await reclaim(engine, 0) == 2

    async with engine.connect() as connection:
        assert await errors_met(connection, campaign) == {131016: 2}
    await check_counters(engine, campaign)
