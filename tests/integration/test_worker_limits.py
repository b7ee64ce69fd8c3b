"""Limits of the worker: messages on the wire, probes, and rows kept for the next block."""

from collections import Counter
from functools import partial
from typing import Any

import httpx
import pytest
from pipeline import BOUND_S, Meta, never, sending
from planting import (
    check_counters,
    claim_all,
    plant_campaign,
    plant_messages,
    plant_number,
    run,
    statuses,
)
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncEngine
from waiting import until

STOPS = {
    "campaign": "UPDATE campaigns SET state = 'paused', pause_reason = 'operator'",
    "number": "UPDATE numbers SET state = 'paused'",
}


async def test_no_more_are_on_the_wire_than_allowed(engine: AsyncEngine, redis: Redis) -> None:
    await plant_number(engine, rate=1000, headroom=0)
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 100)
    meta = Meta(never)
    async with sending(engine, redis, meta, concurrency=4) as sender:
        await until(lambda: meta.on_the_wire >= 4, BOUND_S)
        for _ in range(30):
            await sender.crew.refresh()

        assert meta.on_the_wire == 4
        assert await statuses(engine, campaign) == {"claimed": 4, "pending": 96}


async def test_one_message_probes_whether_an_outage_is_over(
    engine: AsyncEngine, redis: Redis
) -> None:
    await plant_number(engine, rate=20, headroom=0)
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 100)
    meta = Meta()

    async def answer(body: dict[str, Any]) -> httpx.Response:
        if len(meta.requests) == 1:
            raise httpx.ConnectError("refused")
        return await never(body)

    meta.answer = answer
    async with sending(engine, redis, meta) as sender:
        await until(lambda: meta.on_the_wire >= 1, BOUND_S)
        for _ in range(50):
            await sender.crew.refresh()

        assert meta.on_the_wire == 1


def is_back(now: Counter[str]) -> bool:
    return now == {"pending": 1}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS.keys())
async def test_a_row_kept_for_the_next_block_goes_back_when_the_number_stops(
    engine: AsyncEngine, redis: Redis, stop: str
) -> None:
    """Else it stays claimed, and the reclaimer takes what never left for a message in doubt."""
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 1)
    meta = Meta()
    (late,) = (await claim_all(engine, campaign)).messages
    async with sending(engine, redis, meta) as sender:
        await sender.crew.refresh()
        (member,) = sender.crew._members.values()
        await run(engine, stop)
        await sender.crew.refresh()
        member.desk.keep_for_next(late)

        await until(partial(statuses, engine, campaign), 20, is_right=is_back)

    assert meta.requests == []
    await check_counters(engine, campaign)
