"""A campaign is completed when nothing of it is left to do, and not before."""

import asyncio
from typing import Any

import pytest
from planting import (
    campaign_state,
    check_counters,
    claim_all,
    events,
    plant_campaign,
    plant_messages,
    run,
    statuses,
)
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs
from waiting import until

from services.sender.orchestration.completer import complete
from services.sender.pipeline.claim import ClaimedMessage
from services.sender.pipeline.outcome import Accepted, Retry
from services.sender.pipeline.record import Result, record

RUNNING, COMPLETED = ("running", None), ("completed", None)
UPLOAD = """
INSERT INTO uploads (campaign_id, state, heartbeat_at)
VALUES (:campaign, :state, now() - make_interval(secs => :ago))
"""


@pytest.mark.parametrize("status", ["skipped", "accepted", "sent", "failed", "delivered", "read"])
async def test_what_has_left_does_not_keep_it_open(engine: AsyncEngine, status: str) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 3, status=status)

    assert await complete(engine) == 1

    assert await campaign_state(engine, campaign) == COMPLETED
    assert await events(engine, campaign) == [("completed", "completer")]
    async with engine.connect() as connection:
        assert await connection.scalar(text("SELECT ended_at IS NOT NULL FROM campaigns"))


async def test_again_finds_nothing(engine: AsyncEngine) -> None:
    await plant_campaign(engine)
    await plant_campaign(engine)

    assert [await complete(engine) for _ in range(2)] == [2, 0]


@pytest.mark.parametrize(
    ("status", "due_in"), [("pending", -60), ("pending", 3600), ("claimed", 0)]
)
async def test_what_may_still_leave_keeps_it_open(
    engine: AsyncEngine, status: str, due_in: float
) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, status=status, due_in=due_in)
    await plant_messages(engine, campaign, 5, status="read")

    assert await complete(engine) == 0
    assert await campaign_state(engine, campaign) == RUNNING
    assert await events(engine, campaign) == []


@pytest.mark.parametrize(("policy", "count"), [("hold", 1), ("resend", 0)])
async def test_an_unknown_keeps_it_open_only_if_it_may_be_sent_again(
    engine: AsyncEngine, policy: str, count: int
) -> None:
    campaign = await plant_campaign(engine, unknown_policy=policy)
    await plant_messages(engine, campaign, status="unknown")

    assert await complete(engine) == count


@pytest.mark.parametrize(
    "values",
    [
        {"audience": "open"},
        {"state": "paused", "pause_reason": "operator"},
        {"state": "cancelled"},
        {"state": "draft"},
        {"state": "scheduled"},
    ],
    ids=str,
)
async def test_only_a_running_campaign_with_a_closed_audience(
    engine: AsyncEngine, values: dict[str, Any]
) -> None:
    campaign = await plant_campaign(engine, **values)
    before = await campaign_state(engine, campaign)

    assert await complete(engine) == 0
    assert await campaign_state(engine, campaign) == before


@pytest.mark.parametrize(
    ("state", "ago", "count"), [("running", 0, 0), ("running", 200, 1), ("done", 0, 1)]
)
async def test_an_upload_under_way_keeps_it_open_while_it_lives(
    engine: AsyncEngine, state: str, ago: float, count: int
) -> None:
    campaign = await plant_campaign(engine)
    await run(engine, UPLOAD, campaign=campaign, state=state, ago=float(ago))

    assert await complete(engine) == count


async def test_another_campaigns_rows_do_not_matter(engine: AsyncEngine) -> None:
    done, busy = await plant_campaign(engine), await plant_campaign(engine)
    await plant_messages(engine, busy)
    await run(engine, UPLOAD, campaign=busy, state="running", ago=0.0)

    assert await complete(engine) == 1
    assert await campaign_state(engine, done) == COMPLETED


async def test_one_that_raises_keeps_no_other_back(engine: AsyncEngine) -> None:
    stuck, done = await plant_campaign(engine), await plant_campaign(engine)
    # Its event cannot be written, whatever the cause would be in real life.
    refuse = f"ALTER TABLE campaign_events ADD CONSTRAINT stuck CHECK (campaign_id <> {stuck})"
    await run(engine, refuse)
    try:
        with capture_logs() as logs:
            assert await complete(engine) == 1
    finally:
        await run(engine, "ALTER TABLE campaign_events DROP CONSTRAINT stuck")
    assert [(one["loop"], one["id"], one["cause"]) for one in logs] == [
        ("completer", str(stuck), "23514")
    ]
    assert await campaign_state(engine, stuck) == RUNNING
    assert await campaign_state(engine, done) == COMPLETED


async def test_two_at_once_complete_once(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)

    assert sum(await asyncio.gather(*(complete(engine) for _ in range(4)))) == 1
    assert await events(engine, campaign) == [("completed", "completer")]


async def test_it_waits_for_who_requeues_and_sees_what_they_wrote(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    (one,) = await plant_messages(engine, campaign, status="unknown")
    message = ClaimedMessage(one, campaign, 1, 0, "1", {}, 0.0)
    async with engine.connect() as requeuing:
        await record(requeuing, [Result(message, Retry(131000, "meta"))])
        completing = asyncio.create_task(complete(engine))
        await until(lambda: waits_for_a_lock(engine), 20, is_right=bool)
        await requeuing.commit()

        assert await asyncio.wait_for(completing, 20) == 0

    assert await campaign_state(engine, campaign) == RUNNING
    assert await statuses(engine, campaign) == {"pending": 1}


async def waits_for_a_lock(engine: AsyncEngine) -> bool:
    statement = text("""
        SELECT EXISTS (SELECT FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock')
    """)
    async with engine.connect() as connection:
        return bool(await connection.scalar(statement))


async def test_a_whole_life(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 10)
    assert await complete(engine) == 0
    messages = (await claim_all(engine, campaign)).messages
    assert await complete(engine) == 0

    async with engine.begin() as connection:
        await record(connection, [Result(one, Accepted(f"w{one.id}")) for one in messages])

    assert await complete(engine) == 1
    await check_counters(engine, campaign)
