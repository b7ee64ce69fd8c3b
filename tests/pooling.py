"""A transaction pooler as PgBouncer is one: no client keeps a server connection between two."""

import asyncio
import itertools
import struct
import threading
from collections import deque
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

POOL = 5
# Those that PgBouncer knows; any other one is refused unless its operator lets it be ignored.
KNOWN = {
    *("user", "database", "client_encoding", "datestyle", "timezone"),
    *("standard_conforming_strings", "application_name"),
}
SSL, GSS, CANCEL, VERSION = 80877103, 80877104, 80877102, 196608
# Each is answered by one ReadyForQuery: query, sync, function call.
ASKING = (b"Q", b"S", b"F")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def told(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("!I", len(content) + 4) + content


def refusal(text: str) -> bytes:
    fields = (b"SFATAL", b"VFATAL", b"C08P01", b"M" + text.encode())
    return told(b"E", b"".join(part + b"\0" for part in fields) + b"\0")


async def one_message(reader: asyncio.StreamReader) -> bytes:
    """A whole message; empty when the other side has gone."""
    try:
        head = await reader.readexactly(5)
        return head + await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


async def opening(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    length, code = struct.unpack("!II", await reader.readexactly(8))
    return code, await reader.readexactly(length - 8)


@dataclass
class Server:
    """One connection to Postgres; `greeting` is what it says of its settings."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    greeting: bytes

    @classmethod
    async def connect(cls, path: str, database: str) -> "Server":
        reader, writer = await asyncio.open_unix_connection(path)
        content = f"user\0postgres\0database\0{database}\0\0".encode()
        writer.write(struct.pack("!II", len(content) + 8, VERSION) + content)
        greeting = b""
        while (message := await one_message(reader))[:1] != b"Z":
            assert message[:1] in b"RSK", message
            greeting += message if message[:1] == b"S" else b""
        return cls(reader, writer, greeting)


@dataclass
class Pool:
    """Whoever has waited longest gets the connection that has rested longest, so seldom its last.

    `refused` counts the clients that came with a setting of their session; `ignores` lets them in
    and forgets the setting.
    """

    path: str
    database: str
    ignores: bool
    idle: asyncio.Queue[Server] = field(default_factory=asyncio.Queue)
    clients: set[asyncio.Task[None]] = field(default_factory=set)
    moves: int = 0
    refused: int = 0

    async def fill(self) -> None:
        self.idle.put_nowait(await Server.connect(self.path, self.database))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self.clients.add(task)
        client = Client(self, reader, writer)
        try:
            if await client.greeted():
                await client.talk()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # it has gone, or the test is over
        finally:
            await client.end()
            self.clients.discard(task)

    async def close(self) -> None:
        clients = list(self.clients)
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients)
        while not self.idle.empty():
            server = self.idle.get_nowait()
            server.writer.close()
            await server.writer.wait_closed()


class Client:
    """One client: it has a server from its first word until that is idle with nothing to answer."""

    serials = itertools.count(1)

    def __init__(
        self, pool: Pool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._pool = pool
        self._reader = reader
        self._writer = writer
        self._server: Server | None = None
        self._last: Server | None = None
        self._unanswered = 0
        self._answering: deque[asyncio.Task[None]] = deque(maxlen=1)

    async def greeted(self) -> bool:
        code, content = await opening(self._reader)
        while code in (SSL, GSS):
            self._writer.write(b"N")
            code, content = await opening(self._reader)
        names = content.decode().split("\0")[:-2:2]
        strange = [name for name in names if name.lower() not in KNOWN]
        if code == CANCEL:
            return False
        if strange:
            self._pool.refused += 1
        if strange and not self._pool.ignores:
            self._writer.write(refusal(f"unsupported startup parameter: {strange[0]}"))
            return False
        await self._welcome()
        return True

    async def _welcome(self) -> None:
        server = await self._pool.idle.get()
        self._pool.idle.put_nowait(server)
        key = told(b"K", struct.pack("!II", next(self.serials), 0))
        self._writer.write(told(b"R", bytes(4)) + server.greeting + key + told(b"Z", b"I"))
        await self._writer.drain()

    async def talk(self) -> None:
        while (message := await one_message(self._reader)) and message[:1] != b"X":
            server = self._server or await self._take()
            self._unanswered += message[:1] in ASKING
            server.writer.write(message)
            await server.writer.drain()

    async def _take(self) -> Server:
        self._server = server = await self._pool.idle.get()
        self._pool.moves += self._last not in (None, server)
        self._last = server
        self._answering.append(asyncio.create_task(self._answer(server)))
        return server

    async def _answer(self, server: Server) -> None:
        while self._server is server and (message := await one_message(server.reader)):
            if message[:1] == b"Z":
                self._unanswered -= 1
                if message[5:] == b"I" and not self._unanswered:
                    self._server = None
                    self._pool.idle.put_nowait(server)
            self._writer.write(message)
            await self._writer.drain()

    async def end(self) -> None:
        """A server that was left within a transaction is closed, and a new one takes its place."""
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        self._writer.close()
        if self._server:
            self._server.writer.close()
            await self._pool.fill()


class Pooler:
    """A pool before the database of a URL (a unix socket), in a thread with a loop of its own."""

    def __init__(self, database_url: str, *, ignores: bool = False) -> None:
        parts = urlsplit(database_url)
        folder = parse_qs(parts.query)["host"][0]
        database = parts.path.removeprefix("/")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._pool = Pool(f"{folder}/.s.PGSQL.5432", database, ignores)
        self._thread.start()
        self._listening = self._run(self._listen())
        port = self._listening.sockets[0].getsockname()[1]
        self.url = f"postgresql://postgres@127.0.0.1:{port}/{database}"

    @property
    def moves(self) -> int:
        """How often a client went on with another server connection than it had before."""
        return self._pool.moves

    @property
    def refused(self) -> int:
        return self._pool.refused

    def close(self) -> None:
        self._listening.close()
        self._run(self._pool.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        for _ in range(POOL):
            await self._pool.fill()
        return await asyncio.start_server(self._pool.serve, "127.0.0.1", 0)

    def _run(self, step: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result(20)


@contextmanager
def pooling(database_url: str, *, ignores: bool = False) -> Generator[Pooler]:
    pooler = Pooler(database_url, ignores=ignores)
    try:
        yield pooler
    finally:
        pooler.close()
