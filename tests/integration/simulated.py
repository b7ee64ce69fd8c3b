"""A simulator on a free port in the test's own loop, and a target for its webhooks."""

import asyncio
import io
import json
import socket
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
import uvicorn
from aiohttp import web
from waiting import until

from services.simulator.app import create_app

SECRET = "the-app-secret"
NUMBER = "840000000000002"
PERSON = "+12025550142"
TOKEN = "hr1:x:1:1"


@dataclass(frozen=True)
class Reply:
    status: int
    content_type: str
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        return dict(json.loads(self.body)["error"])


class Simulated:
    """What a test does with a running simulator."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self.http = http

    async def play(self, **scenario: Any) -> None:
        scenario.setdefault("latency", {"median_ms": 0})
        async with self.http.put("/_sim/scenario", json=scenario) as reply:
            assert reply.status == 200, await reply.text()

    async def send(self, to: str = PERSON, token: str | None = TOKEN, **how: Any) -> Reply:
        body = {
            "messaging_product": "whatsapp",
            "to": to,
            "type": "template",
            "template": {"name": "offer", "language": {"code": "en"}},
            "biz_opaque_callback_data": token,
        }
        return await self.post(json.dumps(body).encode(), **how)

    async def post(
        self,
        content: bytes,
        *,
        number: str = NUMBER,
        edge: str = "messages",
        bearer: str | None = "Bearer any",
        seconds: float = 10,
    ) -> Reply:
        headers = {"authorization": bearer} if bearer else {}
        patience = aiohttp.ClientTimeout(total=seconds)
        async with self.http.post(
            f"/v25.0/{number}/{edge}", data=io.BytesIO(content), headers=headers, timeout=patience
        ) as reply:
            return Reply(reply.status, reply.content_type, await reply.read())

    async def lines(self, path: str) -> list[dict[str, Any]]:
        async with self.http.get(path) as reply:
            return [json.loads(line) for line in (await reply.read()).splitlines()]

    async def ledger(self) -> list[dict[str, Any]]:
        return await self.lines("/_sim/ledger")

    async def unclear(self) -> list[dict[str, Any]]:
        return await self.lines("/_sim/ambiguous")

    async def stats(self) -> dict[str, Any]:
        async with self.http.get("/_sim/stats") as reply:
            return dict(await reply.json())

    async def webhooks(self) -> dict[str, int]:
        return dict((await self.stats())["webhooks"])

    async def become(self, is_right: Callable[[dict[str, int]], object]) -> dict[str, int]:
        """Wait until the counts of webhooks are right."""
        return await until(self.webhooks, is_right=is_right)

    async def settled(self) -> None:
        """Wait until every status got its 200."""
        await self.become(lambda told: not told["outstanding"])


@asynccontextmanager
async def simulator(**settings: str) -> AsyncGenerator[Simulated, None]:
    """A simulator with settings of its own, `sim_access_token` for example."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {"app_secrets": SECRET, **settings}.items():
            environment.setenv(f"HEADRACE_{name.upper()}", value)
        app = create_app()
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="error", http="httptools", access_log=False)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await until(lambda: server.started)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        async with aiohttp.ClientSession(url) as http:
            yield Simulated(url, http)
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, 10)


@dataclass
class Arrival:
    """One POST that came in."""

    body: bytes
    signature: str
    at: float

    @property
    def value(self) -> dict[str, Any]:
        return dict(json.loads(self.body)["entry"][0]["changes"][0]["value"])

    @property
    def statuses(self) -> list[dict[str, Any]]:
        return list(self.value["statuses"])


@dataclass
class Target:
    """Where webhooks go. Each POST gets the next of `answers`, then 200."""

    url: str = ""
    arrivals: list[Arrival] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    close: bool = False

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        assert request.content_type == "application/json"
        signature = request.headers["X-Hub-Signature-256"]
        self.arrivals.append(Arrival(body, signature, time.monotonic()))
        reply = web.Response(status=self.answers.pop(0) if self.answers else 200)
        if self.close:
            reply.force_close()
        return reply

    def seen(self, key: str = "status") -> list[Any]:
        """This field of every status that came, in the order of coming."""
        return [status.get(key) for arrival in self.arrivals for status in arrival.statuses]

    async def wait_for(self, statuses: int) -> None:
        await until(lambda: len(self.seen()), is_right=lambda count: count >= statuses)


@asynccontextmanager
async def target(port: int = 0) -> AsyncGenerator[Target, None]:
    made = Target()
    app = web.Application()
    app.router.add_post("/webhooks/whatsapp", made.take)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/webhooks/whatsapp"
    try:
        yield made
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw_target(answer: Callable[[], bytes]) -> AsyncGenerator[str, None]:
    """A target below HTTP: writes what `answer` gives to whatever comes in; nothing for nothing."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            writer.write(answer())
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/webhooks/whatsapp"
