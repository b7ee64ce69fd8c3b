"""Serves the sender's REST API on loopback, without worker and loops."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI
from waiting import until

from services.sender.api.routes import install_routes
from services.sender.runtime import Runtime
from shared.web import install_web


@asynccontextmanager
async def serving(runtime: Runtime, **state: object) -> AsyncGenerator[str]:
    """The API's URL; `state` is what routes find beside the runtime."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        _app(runtime=runtime, **state), log_level="warning", timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve([listener]))
    await until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


def _app(**state: object) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[dict[str, object]]:
        yield state

    async def ready() -> str | None:
        return None

    app = FastAPI(lifespan=lifespan)
    install_web(app, ready)
    install_routes(app)
    return app
