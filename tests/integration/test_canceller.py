"""A cancelled campaign is emptied in steps."""

import asyncio

import pytest
from planting import (
    check_counters,
    claim_all,
    plant_campaign,
    plant_messages,
    rows,
    statuses,
)
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.orchestration.canceller import skip_pending
from services.sender.pipeline.outcome import Throttled
from services.sender.pipeline.record import Result, record

STEP = 5_000


async def test_pending_rows_become_skipped(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine, state="cancelled")
    await plant_messages(engine, campaign, 2)
    await plant_messages(engine, campaign, 2, due_in=3600, error_code=131000, attempt=3)

    assert await skip_pending(engine) == 4

    for row in await rows(engine, campaign):
        assert (row.status, row.reason, row.due_at) == ("skipped", "cancelled", None)
    await check_counters(engine, campaign)


async def test_in_steps_of_some_thousands(engine: AsyncEngine) -> None:
    first, second = [await plant_campaign(engine, state="cancelled") for _ in range(2)]
    await plant_messages(engine, first, STEP - 10)
    await plant_messages(engine, second, 30)

    assert [await skip_pending(engine) for _ in range(3)] == [STEP, 20, 0]

    assert await statuses(engine, first) == {"skipped": STEP - 10}
    assert await statuses(engine, second) == {"skipped": 30}
    await check_counters(engine, first, second)


@pytest.mark.parametrize(
    "status", ["claimed", "unknown", "accepted", "sent", "failed", "delivered", "read"]
)
async def test_what_has_left_ends_as_it_ends(engine: AsyncEngine, status: str) -> None:
    campaign = await plant_campaign(engine, state="cancelled")
    await plant_messages(engine, campaign, 3, status=status)

    assert await skip_pending(engine) == 0
    assert await statuses(engine, campaign) == {status: 3}


@pytest.mark.parametrize("state", ["draft", "scheduled", "running", "paused", "completed"])
async def test_only_cancelled_campaigns(engine: AsyncEngine, state: str) -> None:
    reason = "operator" if state == "paused" else None
    campaign = await plant_campaign(engine, state=state, pause_reason=reason)
    await plant_messages(engine, campaign, 3)

    assert await skip_pending(engine) == 0
    assert await statuses(engine, campaign) == {"pending": 3}


async def test_two_at_once_skip_each_row_once(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine, state="cancelled")
    await plant_messages(engine, campaign, 300)

    found = await asyncio.gather(*(skip_pending(engine) for _ in range(4)))
    found.append(await skip_pending(engine))

    assert sum(found) == 300
    assert await statuses(engine, campaign) == {"skipped": 300}
    await check_counters(engine, campaign)


async def test_a_row_that_somebody_has_in_hand_is_passed_over(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine, state="cancelled")
    ids = await plant_messages(engine, campaign, 3)
    async with engine.begin() as other:
        await other.execute(text("SELECT FROM messages WHERE id = :id FOR UPDATE"), {"id": ids[1]})

        assert await asyncio.wait_for(skip_pending(engine), 20) == 2

    assert await skip_pending(engine) == 1


async def test_what_is_handed_back_after_the_cancel_is_skipped_too(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 2)
    messages = (await claim_all(engine, campaign)).messages
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE campaigns SET state = 'cancelled'"))
    assert await skip_pending(engine) == 0

    back = [Result(one, Throttled("stopped", sent_nothing=True)) for one in messages]
    async with engine.begin() as connection:
        await record(connection, back)

    assert await skip_pending(engine) == 2
    await check_counters(engine, campaign)
