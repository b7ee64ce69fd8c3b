"""A sender's REST API with its live messages, and a Meta of the test's own in the seam."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from pipeline import Meta
from redis.asyncio import Redis
from sender_api import ADMIN_KEY, NUMBER, SETTINGS, Api
from serving_api import serving
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.api.keys import ensure_admin_key
from services.sender.pipeline.live import Live
from services.sender.pipeline.recorder import Recorder
from services.sender.pipeline.send import Outlet
from services.sender.runtime import Runtime
from services.sender.settings import SenderSettings
from shared.periodic import every

PATH = f"/v1/phone-numbers/{NUMBER}/messages"
PERSON = "+12025550142"
HELLO = {"to": PERSON, "text": {"body": "Your ticket 5521 is closed."}}

_CAMPAIGN = text("SELECT id FROM campaigns WHERE state = 'live'")


@dataclass
class Site:
    """What a test does with it."""

    api: Api
    meta: Meta
    live: Live
    engine: AsyncEngine
    recorder: Recorder

    async def say(self, body: dict[str, Any] = HELLO, **headers: str) -> httpx.Response:
        return await self.api.post(PATH, json=body, headers=headers)

    async def shown(self, answer: httpx.Response) -> dict[str, Any]:
        """What the API shows of the message that an answer names."""
        found = await self.api.get(f"/v1/messages/{answer.json()['id']}")
        assert found.status_code == 200, found.text
        return dict(found.json())

    async def campaign(self) -> int:
        """The hidden campaign that counts them."""
        async with self.engine.connect() as connection:
            return int((await connection.execute(_CAMPAIGN)).scalar_one())


@asynccontextmanager
async def running(
    engine: AsyncEngine,
    redis: Redis,
    transport: httpx.AsyncBaseTransport,
    meta: Meta,
    settings: SenderSettings = SETTINGS,
) -> AsyncGenerator[Site]:
    recorder = Recorder(engine)
    outlet = Outlet(transport, settings.graph_url, "v25.0")
    live = Live(engine, redis, outlet, recorder, settings)
    recording = asyncio.create_task(every(0.1, recorder.step, name="recorder"))
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    await ensure_admin_key(engine, settings)
    async with (
        serving(Runtime(settings, engine, redis), live=live) as url,
        Api(base_url=url, headers=headers, timeout=30) as api,
    ):
        assert (await api.register()).status_code == 200
        try:
            yield Site(api, meta, live, engine, recorder)
        finally:
            await live.drain(0)
            recording.cancel()
            await api.post("/v1/unhalt")  # no other test may find it halted
