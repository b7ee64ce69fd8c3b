"""A Meta of the test's own behind a real socket, and the way there that production takes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
from aiohttp import web
from pipeline import Meta

from services.sender.pipeline.send import Outlet
from services.sender.pipeline.transport import AiohttpTransport

_HEADERS = ("content-type", "retry-after", "x-business-use-case-usage")


@asynccontextmanager
async def wired(meta: Meta, *, read_timeout: float = 20.0) -> AsyncGenerator[None]:
    """Serve it; senders go there."""
    async with served(meta) as url, reaching(meta, url, read_timeout):
        yield


@asynccontextmanager
async def reaching(meta: Meta, url: str, read_timeout: float = 20.0) -> AsyncGenerator[None]:
    """Let senders go to this URL, whoever is there."""
    transport = AiohttpTransport()
    meta.outlet = Outlet(transport, url, "v25.0", connect_timeout=5, read_timeout=read_timeout)
    try:
        yield
    finally:
        await transport.aclose()


@asynccontextmanager
async def served(meta: Meta, port: int = 0) -> AsyncGenerator[str]:
    """The URL of a server that answers what this Meta answers."""

    async def answer(request: web.Request) -> web.Response:
        sent = httpx.Request(
            request.method, str(request.url), headers=request.headers, content=await request.read()
        )
        reply = await meta.handle(sent)
        headers = {name: reply.headers[name] for name in _HEADERS if name in reply.headers}
        return web.Response(status=reply.status_code, body=reply.content, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
