"""Scheduled campaigns start when their time has come, once, or wait for a person."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from planting import (
    campaign_state,
    change_campaign,
    events,
    plant_campaign,
    plant_messages,
    run,
)
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs

from services.sender.orchestration.scheduler import start_scheduled

RUNNING, WAITING = ("running", None), ("scheduled", None)
MISSED = ("paused", "schedule_missed")
STARTED = [("started", "scheduler")]


def ago(**distance: float) -> datetime:
    return datetime.now(UTC) - timedelta(**distance)


async def plant(engine: AsyncEngine, start_at: datetime, count: int = 1, **values: Any) -> int:
    """A scheduled campaign with an open audience."""
    values = {"state": "scheduled", "audience": "open", "start_at": start_at} | values
    campaign = await plant_campaign(engine, **values)
    if count:
        await plant_messages(engine, campaign, count)
    return campaign


@pytest.mark.parametrize("late", [0.0, 1.0, 59 * 60])
async def test_it_starts_up_to_an_hour_late(engine: AsyncEngine, late: float) -> None:
    campaign = await plant(engine, ago(seconds=late))

    assert [await start_scheduled(engine) for _ in range(2)] == [1, 0]

    assert await campaign_state(engine, campaign) == RUNNING
    assert await events(engine, campaign) == STARTED


async def test_not_before_its_time(engine: AsyncEngine) -> None:
    campaign = await plant(engine, ago(minutes=-1))

    assert await start_scheduled(engine) == 0
    assert await campaign_state(engine, campaign) == WAITING


async def test_after_an_hour_it_waits_for_a_person(engine: AsyncEngine) -> None:
    campaign = await plant(engine, ago(minutes=61))

    assert [await start_scheduled(engine) for _ in range(2)] == [1, 0]

    assert await campaign_state(engine, campaign) == MISSED
    assert await events(engine, campaign) == [("paused", "scheduler")]


@pytest.mark.parametrize("state", ["draft", "running", "paused", "completed", "cancelled"])
@pytest.mark.parametrize("late", [1, 7200])
async def test_only_scheduled_campaigns(engine: AsyncEngine, state: str, late: float) -> None:
    reason = "operator" if state == "paused" else None
    campaign = await plant(engine, ago(seconds=late), state=state, pause_reason=reason)

    assert await start_scheduled(engine) == 0
    assert await campaign_state(engine, campaign) == (state, reason)


async def test_what_is_not_ready_is_tried_again_and_keeps_no_other_back(
    engine: AsyncEngine,
) -> None:
    empty = await plant(engine, ago(minutes=5), count=0)
    ready = await plant(engine, ago(minutes=4))

    assert await start_scheduled(engine) == 1
    assert await campaign_state(engine, empty) == WAITING
    assert await campaign_state(engine, ready) == RUNNING

    await plant_messages(engine, empty)
    assert await start_scheduled(engine) == 1
    assert await campaign_state(engine, empty) == RUNNING


async def test_it_waits_for_an_upload_that_its_start_would_cut_off(engine: AsyncEngine) -> None:
    campaign = await plant(engine, ago(minutes=5))
    upload = "INSERT INTO uploads (campaign_id, state) VALUES (:campaign, 'running')"
    await run(engine, upload, campaign=campaign)
    assert await start_scheduled(engine) == 0

    await run(engine, "UPDATE uploads SET state = 'done'")
    assert await start_scheduled(engine) == 1


async def test_what_was_never_ready_is_missed(engine: AsyncEngine) -> None:
    campaign = await plant(engine, ago(minutes=5), count=0)
    assert await start_scheduled(engine) == 0
    await change_campaign(engine, campaign, start_at=ago(minutes=61))

    assert await start_scheduled(engine) == 1
    assert await campaign_state(engine, campaign) == MISSED


async def test_what_has_expired_does_not_start(engine: AsyncEngine) -> None:
    campaign = await plant(engine, ago(minutes=5), expires_at=ago(minutes=1))

    assert await start_scheduled(engine) == 0
    assert await campaign_state(engine, campaign) == WAITING


async def test_several_at_once_start_and_pause_each_once(engine: AsyncEngine) -> None:
    due = [await plant(engine, ago(minutes=1)) for _ in range(3)]
    late = [await plant(engine, ago(hours=2)) for _ in range(3)]

    assert sum(await asyncio.gather(*(start_scheduled(engine) for _ in range(4)))) == 6

    for campaign in due:
        assert await events(engine, campaign) == STARTED
    for campaign in late:
        assert await events(engine, campaign) == [("paused", "scheduler")]


async def test_a_template_that_no_longer_compiles_is_not_ready(engine: AsyncEngine) -> None:
    broken = {"name": "n", "language": "en", "components": [{"text": "{{}}"}]}
    first = await plant(engine, ago(minutes=5), template=broken)
    second = await plant(engine, ago(minutes=4))

    assert await start_scheduled(engine) == 1
    assert await campaign_state(engine, first) == WAITING
    assert await campaign_state(engine, second) == RUNNING


async def test_one_that_raises_keeps_no_other_back(engine: AsyncEngine) -> None:
    first = await plant(engine, ago(minutes=5), template={"what": "nobody expects"})
    second = await plant(engine, ago(minutes=4))

    with capture_logs() as logs:
        assert await start_scheduled(engine) == 1

    assert [(one["event"], one["loop"], one["error"]) for one in logs] == [
        ("loop_failed", "scheduler", "KeyError")
    ]
    assert await campaign_state(engine, first) == WAITING
    assert await campaign_state(engine, second) == RUNNING
