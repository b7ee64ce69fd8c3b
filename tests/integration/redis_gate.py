"""A way to the test's Valkey that can hang or be shut, and the sender's API behind it.

A plugin, after `sender_server`: a test module names both in `pytest_plugins`.
"""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from sender_api import ADMIN_KEY, SETTINGS, Api
from sender_server import serving
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.runtime import Runtime
from shared.redis import create_redis


class Gate:
    """Carries what clients and Valkey say; `redis` is a client that goes through it."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._open = asyncio.Event()
        self._open.set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._carry_both, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.redis = create_redis(f"redis://127.0.0.1:{port}/0")

    def hang(self) -> None:
        self._open.clear()

    def resume(self) -> None:
        self._open.set()

    async def shut(self) -> None:
        """Nobody listens any more, and whoever was connected is cut off."""
        self.resume()
        self._server.close()
        await self.redis.aclose()
        await self._server.wait_closed()

    async def _carry_both(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_valkey, to_valkey = await asyncio.open_unix_connection(self._socket)
        await asyncio.gather(self._carry(reader, to_valkey), self._carry(from_valkey, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            await self._open.wait()
            writer.write(data)
        writer.close()


@pytest.fixture
async def gate(redis_url: str) -> AsyncGenerator[Gate]:
    made = Gate(redis_url.removeprefix("unix://").partition("?")[0])
    await made.start()
    yield made
    await made.shut()


@pytest.fixture
async def gated_api(api: Api, gate: Gate, engine: AsyncEngine) -> AsyncGenerator[Api]:
    """A client that waits at most two seconds for an answer."""
    assert api  # it makes the admin key
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    async with (
        serving(Runtime(SETTINGS, engine, gate.redis)) as url,
        Api(base_url=url, headers=headers, timeout=2) as client,
    ):
        yield client
