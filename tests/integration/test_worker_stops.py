"""A stop stops: by people, by a pause of the number, by the red button, by a code of Meta's."""

from collections import Counter
from functools import partial

import pytest
from pipeline import BOUND_S, Meta, become, refuse, sending
from planting import (
    campaign_state,
    change_campaign,
    check_counters,
    plant_campaign,
    plant_messages,
    plant_number,
    rows,
    run,
    statuses,
)
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncEngine
from waiting import until

STOPS = {
    "campaign": (
        "UPDATE campaigns SET state = 'paused', pause_reason = 'operator'",
        "UPDATE campaigns SET state = 'running', pause_reason = NULL",
    ),
    "number": (
        "UPDATE numbers SET state = 'paused'",
        "UPDATE numbers SET state = 'active'",
    ),
    "halt": (
        "UPDATE installation SET halted = true",
        "UPDATE installation SET halted = false",
    ),
}


def none_claimed(now: Counter[str]) -> bool:
    return "claimed" not in now


@pytest.mark.parametrize(("stop", "resume"), STOPS.values(), ids=STOPS.keys())
async def test_a_stop_stops_and_the_rest_leaves_afterwards(
    engine: AsyncEngine, redis: Redis, stop: str, resume: str
) -> None:
    await plant_number(engine, rate=200, headroom=0)
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 150)
    meta = Meta()
    async with sending(engine, redis, meta) as sender:
        await until(lambda: len(meta.requests) >= 10, BOUND_S)
        await run(engine, stop)
        try:
            await sender.crew.refresh()
            sent = len(meta.requests)
            await until(partial(statuses, engine, campaign), BOUND_S, is_right=none_claimed)
            assert await statuses(engine, campaign) == {"accepted": sent, "pending": 150 - sent}
            assert len(meta.requests) == sent < 150
        finally:
            await run(engine, resume)
        await become(engine, campaign, accepted=150)

    assert set(meta.times_sent.values()) == {1}
    await check_counters(engine, campaign)


def is_paused(now: tuple[str, str | None]) -> bool:
    return now == ("paused", "token")


async def test_a_token_that_died_pauses_its_campaign(engine: AsyncEngine, redis: Redis) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 5)
    meta = Meta(lambda _: refuse(190))
    async with sending(engine, redis, meta):
        state = partial(campaign_state, engine, campaign)
        await until(state, BOUND_S, is_right=is_paused)
        await become(engine, campaign, pending=5)

    await change_campaign(engine, campaign, state="running", pause_reason=None)
    async with sending(engine, redis, Meta()):
        await become(engine, campaign, accepted=5)
    assert {row.spent for row in await rows(engine, campaign)} == {1}
    await check_counters(engine, campaign)
