"""Live messages of whole senders: killed, drained, and beside campaigns that run flat out."""

import asyncio
import random
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import httpx
import pytest
from planting import check_counters, plant_campaign, plant_messages, run, statuses
from running import Processes
from sender_api import ADMIN_KEY, NUMBER, Api
from simulated import Simulated, simulator
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from waiting import until

from services.cli.processes import ServiceProcess
from services.sender.orchestration.reclaimer import reclaim

PATH = f"/v1/phone-numbers/{NUMBER}/messages"
HELLO = {"to": "+12025550142", "text": {"body": "x"}}
STOP_S = 40
COUNTED = re.compile(r"^headrace_live_wait_seconds_(bucket|count)\{(.*)\} ([0-9.]+)$", re.MULTILINE)


@dataclass
class Sender:
    """A process and a client of it."""

    process: ServiceProcess
    api: Api

    async def live_waits(self) -> tuple[int, int]:
        """How many live messages had their permit within 100 ms, and how many there were."""
        told = COUNTED.findall((await self.api.get("/metrics")).text)
        quick = sum(float(n) for kind, labels, n in told if 'le="0.1"' in labels)
        return int(quick), int(sum(float(n) for kind, _, n in told if kind == "count"))


StartSender = Callable[..., Awaitable[Sender]]


@pytest.fixture
async def start_sender(
    processes: Processes, engine: AsyncEngine, database_url: str, redis_url: str
) -> AsyncGenerator[StartSender]:
    assert engine
    async with AsyncExitStack() as stack:

        async def start(meta: Simulated, **more: str) -> Sender:
            env = {
                "DATABASE_URL": database_url,
                "REDIS_URL": redis_url,
                "HEADRACE_ACCESS_TOKEN": "TEST-TOKEN-01",
                "HEADRACE_ADMIN_KEY": ADMIN_KEY,
                "HEADRACE_GRAPH_URL": meta.url,
                **more,
            }
            process = await processes.start("sender", "services.sender.app:create_app", env)
            headers = {"authorization": f"Bearer {ADMIN_KEY}"}
            api = Api(base_url=process.url, headers=headers, timeout=30)
            return Sender(process, await stack.enter_async_context(api))

        yield start


async def live_campaign(engine: AsyncEngine) -> int:
    async with engine.connect() as connection:
        found = await connection.execute(text("SELECT id FROM campaigns WHERE state = 'live'"))
        return int(found.scalar_one())


async def test_killed_in_mid_send_it_is_unknown(
    engine: AsyncEngine, start_sender: StartSender
) -> None:
    async with simulator() as meta:
        await meta.play(ambiguous=[{"kind": "stall", "share": 1, "accepted": True}])
        sender = await start_sender(meta)
        await sender.api.register()
        asking = asyncio.create_task(sender.api.post(PATH, json=HELLO))
        await until(meta.ledger)
        sender.process.kill()
        with pytest.raises(httpx.TransportError):
            await asking
        campaign = await live_campaign(engine)
        assert await statuses(engine, campaign) == {"claimed": 1}
        await run(engine, "UPDATE messages SET claimed_at = claimed_at - interval '100 s'")

        assert await reclaim(engine, lease_s=90) == 1

        assert await statuses(engine, campaign) == {"unknown": 1}
        assert len(await meta.ledger()) == 1
        await check_counters(engine, campaign)


async def test_a_stop_waits_for_what_is_on_the_wire(
    engine: AsyncEngine, start_sender: StartSender
) -> None:
    """The server cuts its caller off after three seconds; the message is recorded all the same."""
    async with simulator() as meta:
        await meta.play(latency={"median_ms": 4500, "sigma": 0})
        sender = await start_sender(meta)
        await sender.api.register()
        asking = asyncio.create_task(sender.api.post(PATH, json=HELLO))
        await until(meta.ledger)

        await asyncio.to_thread(sender.process.stop, STOP_S)

        await asyncio.wait([asking])
        campaign = await live_campaign(engine)
        assert await statuses(engine, campaign) == {"accepted": 1}
        await check_counters(engine, campaign)


@pytest.mark.soak
async def test_live_beside_campaigns_that_run_flat_out(
    engine: AsyncEngine, start_sender: StartSender
) -> None:
    """Three senders at 80/s, a fifth of it headroom, live messages by chance at a tenth."""
    seconds, chance = 60, random.Random(4)
    async with simulator() as meta:
        await meta.play(latency={"median_ms": 100, "sigma": 0.3})
        campaign = await plant_campaign(engine)
        await plant_messages(engine, campaign, 80 * (seconds + 60))
        senders = [await start_sender(meta) for _ in range(3)]
        await until(meta.ledger)
        asking = []
        for _ in range(8 * seconds):
            await asyncio.sleep(chance.expovariate(8))
            post = chance.choice(senders).api.post(PATH, json=HELLO)
            asking.append(asyncio.create_task(post))
        answers = await asyncio.gather(*asking)

        assert {answer.status_code for answer in answers} == {200}
        waits = [await sender.live_waits() for sender in senders]
        quick, counted = (sum(column) for column in zip(*waits, strict=True))
        assert counted == len(answers)
        assert quick >= 0.99 * counted
        assert (await meta.stats())["refused"] == {}
        print(f"live: {quick} of {counted} had a permit within 100 ms")  # noqa: T201  # a report
