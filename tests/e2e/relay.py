"""TCP relays between our processes and Meta: they know what is on the wire, and can cut it."""

import asyncio
import itertools
import random
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from typing_extensions import override

TOKEN = re.compile(rb"hr1:[^\"\\]+")
TRAP_SECONDS = 30
RESET = struct.pack("ii", 1, 0)


class Side(asyncio.Protocol):
    """One end of a link."""

    def __init__(self, link: "Link", *, asks: bool) -> None:
        self._link = link
        self._asks = asks

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._link.opened(cast("asyncio.Transport", transport), asks=self._asks)

    @override
    def data_received(self, data: bytes) -> None:
        self._link.carry(data, asks=self._asks)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._link.close()


class Link:
    """A client's connection and the one that goes on from it. Open while a reply is awaited."""

    def __init__(self, relay: "Relay") -> None:
        self._relay = relay
        self._client: asyncio.Transport | None = None
        self._server: asyncio.Transport | None = None
        self._early = b""
        self._connecting: asyncio.Task[None] | None = None
        self.target = 0
        self.is_open = False

    def opened(self, transport: asyncio.Transport, *, asks: bool) -> None:
        if asks:
            self._client = transport
            self._relay.links.add(self)
            self._connecting = asyncio.create_task(self._connect())
        else:
            self._server = transport
            transport.write(self._early)

    async def _connect(self) -> None:
        """To the next target that takes it; to nobody when all are down."""
        loop = asyncio.get_running_loop()
        for target in self._relay.turn():
            self.target, port = target, self._relay.ports[target]
            try:
                await loop.create_connection(lambda: Side(self, asks=False), "127.0.0.1", port)
            except OSError:
                continue
            return
        self.close()

    def carry(self, data: bytes, *, asks: bool) -> None:
        self.is_open = asks
        if not asks:
            assert self._client
            self._client.write(data)
            return
        now = time.monotonic()
        self._relay.tokens += [(now, token.decode()) for token in TOKEN.findall(data)]
        if self._server:
            self._server.write(data)
        else:
            self._early += data
        self._relay.passed(self)

    def close(self, *, reset: bool = False) -> None:
        if self not in self._relay.links:
            return
        self._relay.links.discard(self)
        self._relay.cut_off[self.target] += self.is_open
        self.is_open = False
        for transport in (self._client, self._server):
            if transport and reset:
                sock = transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            if transport:
                transport.abort()


@dataclass
class Trap:
    """What to do so long after a request has gone by, if it has no reply yet by then."""

    target: int
    delay: float
    act: Callable[[], object]
    sprung: Future[int] = field(default_factory=Future)


class Relay:
    """Listens on `port` for as long as the test runs, whoever comes and goes behind it.

    `ports` are its targets, taken in turn; `cut_off` counts, by target, the connections that ended
    while a reply was awaited; `tokens` are those that went by, with the monotonic time.
    """

    def __init__(self, targets: int) -> None:
        self.ports = [1] * targets
        self.cut_off = [0] * targets
        self.tokens: list[tuple[float, str]] = []
        self.links: set[Link] = set()
        self._turns = itertools.count()
        self._trap: Trap | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def listen(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Side(Link(self), asks=True), "127.0.0.1", 0, backlog=512
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def end(self) -> None:
        if self._server:
            self._server.close()
        for link in list(self.links):
            link.close()

    def turn(self) -> list[int]:
        """All targets, beginning with the next one."""
        first = next(self._turns)
        return [(first + place) % len(self.ports) for place in range(len(self.ports))]

    def open(self, target: int | None = None) -> int:
        """Requests without a reply now."""
        links = list(self.links)
        return sum(link.is_open for link in links if target in (None, link.target))

    async def trap(self, target: int, delay: float, act: Callable[[], object]) -> int:
        """Act at an instant when this target owes a reply; how many it owed."""
        self._trap = Trap(target, delay, act)
        return await asyncio.wait_for(asyncio.wrap_future(self._trap.sprung), TRAP_SECONDS)

    def passed(self, link: Link) -> None:
        """A request has gone on to its target."""
        if self._loop and self._trap and self._trap.target == link.target:
            trap, self._trap = self._trap, None
            self._loop.call_later(trap.delay, self._spring, trap, link)

    def _spring(self, trap: Trap, link: Link) -> None:
        if link.is_open:
            owed = self.open(trap.target)
            trap.act()
            trap.sprung.set_result(owed)
        else:
            self._trap = trap

    def cut(self, share: float, dice: random.Random) -> int:
        """Break about so many of the connections, half of them by a reset; how many were open."""
        assert self._loop
        return asyncio.run_coroutine_threadsafe(self._cut(share, dice), self._loop).result(20)

    async def _cut(self, share: float, dice: random.Random) -> int:
        chosen = [link for link in list(self.links) if dice.random() < share]
        before = sum(link.is_open for link in chosen)
        for link in chosen:
            link.close(reset=dice.random() < 0.5)
        return before


class Relays:
    """All relays of a test, in a thread with a loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._relays: list[Relay] = []
        self._thread.start()

    def add(self, targets: int = 1) -> Relay:
        relay = Relay(targets)
        self._relays.append(relay)
        self.run(relay.listen())
        return relay

    def run(self, step: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result(20)

    def close(self) -> None:
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for relay in self._relays:
            await relay.end()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def relaying() -> Generator[Relays]:
    relays = Relays()
    try:
        yield relays
    finally:
        relays.close()
