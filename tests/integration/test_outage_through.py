"""An outage of Meta, short: it fails no one, leaves little in doubt, and ends by itself."""

from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest
from pipeline import BOUND_S, Meta, Sender, accept, become, sending
from planting import (
    campaign_state,
    check_counters,
    plant_campaign,
    plant_messages,
    plant_number,
    rows,
    statuses,
)
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncEngine
from waiting import until
from wire import reaching, served

from services.sender.pipeline.outage import Waits

# Some hundredth of what production waits.
WAITS = Waits(unreachable=(0.02, 0.2), out=(0.1, 0.4))
PAGE = httpx.Response(502, content=b"<html>Bad Gateway</html>")
BUSY = httpx.Response(503, content=b"<html>Busy</html>")
AWAY = httpx.Response(500, json={"error": {"code": 131016}})
PEOPLE, RATE = 300, 400
# Signs in a row until it is known for an outage, and what leaves in the moment before.
SIGNS, MOMENT = 20, 15
PROBES = 3


class Day:
    """A Meta with good and bad hours."""

    def __init__(self) -> None:
        self.reply: httpx.Response | None = None
        self.bad = 0
        self.meta = Meta(self.answer, waits=WAITS)

    def answer(self, body: dict[str, Any]) -> httpx.Response:
        if self.reply is None:
            return accept(body)
        self.bad += 1
        return self.reply

    async def several_probes(self) -> None:
        before = self.bad
        await until(lambda: self.bad >= before + PROBES, BOUND_S)


async def planted(engine: AsyncEngine) -> int:
    await plant_number(engine, rate=RATE, headroom=0)
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, PEOPLE)
    return campaign


def probes(sender: Sender) -> bool:
    (member,) = sender.crew._members.values()
    return member.sending.outage.probing


async def accepted(engine: AsyncEngine, campaign: int) -> int:
    return (await statuses(engine, campaign)).get("accepted", 0)


async def test_refused_connections_and_then_pages_of_a_proxy(
    engine: AsyncEngine, redis: Redis, free_port: Callable[[], int]
) -> None:
    campaign, day, port = await planted(engine), Day(), free_port()
    url = f"http://127.0.0.1:{port}"
    async with reaching(day.meta, url), sending(engine, redis, day.meta) as sender:
        async with served(day.meta, port):
            await until(lambda: len(day.meta.requests) >= 50, BOUND_S)
        await until(partial(probes, sender), BOUND_S)
        await sender.recorder.flush()
        good = len(day.meta.requests)
        on_the_wire = (await statuses(engine, campaign)).get("unknown", 0)
        assert on_the_wire <= MOMENT

        day.reply = PAGE
        day.meta.most_on_the_wire = 0
        async with served(day.meta, port):
            await day.several_probes()
            assert day.meta.most_on_the_wire == 1
            assert len(day.meta.requests) == good + day.bad
            day.reply = None
            in_doubt = on_the_wire + day.bad
            await become(engine, campaign, unknown=in_doubt, accepted=PEOPLE - in_doubt)

    assert max(day.meta.times_sent.values()) == 1
    assert await campaign_state(engine, campaign) == ("running", None)
    await check_counters(engine, campaign)


@pytest.mark.parametrize("reply", [PAGE, BUSY, AWAY], ids=["502", "503", "131016"])
async def test_a_meta_that_breaks_at_full_speed(
    engine: AsyncEngine, redis: Redis, reply: httpx.Response
) -> None:
    campaign = await planted(engine)
    day = Day()
    async with (
        served(day.meta) as url,
        reaching(day.meta, url),
        sending(engine, redis, day.meta) as sender,
    ):
        await until(partial(accepted, engine, campaign), BOUND_S, is_right=lambda n: n >= 50)
        day.reply = reply
        await until(partial(probes, sender), BOUND_S)
        await until(lambda: not day.meta.on_the_wire, BOUND_S)
        assert day.bad <= SIGNS + MOMENT
        day.meta.most_on_the_wire = 0
        await day.several_probes()
        assert day.meta.most_on_the_wire == 1
        day.reply = None
        in_doubt = {"unknown": day.bad} if reply is PAGE else {}
        await become(engine, campaign, accepted=PEOPLE - sum(in_doubt.values()), **in_doubt)

    assert await campaign_state(engine, campaign) == ("running", None)
    assert {row.status for row in await rows(engine, campaign)} <= {"accepted", "unknown"}
    await check_counters(engine, campaign)
