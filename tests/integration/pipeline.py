"""The whole send pipeline in the test's own loop, with a Meta of the test's own in the seam."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
from planting import statuses
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncEngine
from waiting import until

from services.sender.pipeline.bucket import Bucket
from services.sender.pipeline.crew import Crew
from services.sender.pipeline.desk import Bounds
from services.sender.pipeline.outage import WAITS, Outage, Waits
from services.sender.pipeline.recorder import Recorder
from services.sender.pipeline.send import Outlet
from services.sender.pipeline.sending import Sending
from shared.db.installation import Installation
from shared.periodic import every

ACCESS_TOKEN = "the-token-of-the-number"
GRAPH = "https://graph.example"
BOUND_S = 40.0
EVERYONE = Bounds(lease_s=90)

Answer = Callable[[dict[str, Any]], httpx.Response | Awaitable[httpx.Response]]


def accept(body: dict[str, Any]) -> httpx.Response:
    """What Meta says when it takes a message."""
    wamid = f"wamid.{body['biz_opaque_callback_data']}"
    return httpx.Response(200, json={"messages": [{"id": wamid}]})


def refuse(code: int, details: str = "why") -> httpx.Response:
    error = {"code": code, "error_data": {"details": details}, "fbtrace_id": "trace"}
    return httpx.Response(400, json={"error": error})


@dataclass
class Meta:
    """Notes every request and answers it.

    With an `outlet`, senders reach it over a real socket (`wired`). An outage makes them wait as
    `waits` says.
    """

    answer: Answer = accept
    requests: list[httpx.Request] = field(default_factory=list)
    on_the_wire: int = 0
    most_on_the_wire: int = 0
    outlet: Outlet | None = None
    waits: Waits = WAITS

    async def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.on_the_wire += 1
        self.most_on_the_wire = max(self.most_on_the_wire, self.on_the_wire)
        try:
            answered = self.answer(json.loads(request.content))
            return await answered if isinstance(answered, Awaitable) else answered
        finally:
            self.on_the_wire -= 1

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.requests]

    @property
    def times_sent(self) -> Counter[str]:
        """How many requests each person's phone got."""
        return Counter(body["to"] for body in self.bodies)

    @property
    def attempts(self) -> list[int]:
        """The attempt that each token names."""
        return [int(body["biz_opaque_callback_data"].split(":")[3]) for body in self.bodies]


async def never(_: dict[str, Any]) -> httpx.Response:
    """An answer that does not come."""
    await asyncio.Event().wait()
    raise AssertionError


@dataclass
class Sender:
    """A running sender without its REST API."""

    crew: Crew
    recorder: Recorder

    async def stop(self, seconds: float) -> int:
        """Drain, as at the end of the process; returns how many sends were cut off."""
        cut = await asyncio.wait_for(self.crew.drain(seconds), BOUND_S)
        await asyncio.wait_for(self.recorder.flush(), BOUND_S)
        return cut


@asynccontextmanager
async def sending(
    engine: AsyncEngine,
    redis: Redis,
    meta: Meta,
    *,
    concurrency: int = 64,
    bounds: Bounds = EVERYONE,
    token_for: Callable[[str | None], str] = lambda _: ACCESS_TOKEN,
) -> AsyncGenerator[Sender]:
    """A sender that looks at its roster often, drained at the end."""
    recorder = Recorder(engine)
    way = meta.outlet or Outlet(httpx.MockTransport(meta.handle), GRAPH, "v25.0")

    def make(number: str, bucket: Bucket, installation: str) -> Sending:
        made = Sending(
            number, way, recorder, bucket, installation=installation, concurrency=concurrency
        )
        made.outage = Outage(meta.waits)
        return made

    known = Installation(engine, None)
    crew = Crew(engine, redis, make, token_for, installation=known, bounds=bounds)
    sender = Sender(crew, recorder)
    recording = asyncio.create_task(every(0.1, recorder.step, name="recorder"))
    looking = asyncio.create_task(every(0.05, sender.crew.refresh, name="roster"))
    try:
        yield sender
    finally:
        looking.cancel()
        await asyncio.wait([looking])
        await sender.stop(1)
        recording.cancel()
        await asyncio.wait([recording])


async def become(engine: AsyncEngine, campaign: int, **expected: int) -> None:
    """Wait until the campaign has exactly so many rows in each status."""

    def right(now: Counter[str]) -> bool:
        return now == expected

    await until(partial(statuses, engine, campaign), BOUND_S, is_right=right)
