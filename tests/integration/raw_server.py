"""A server on blocking sockets that breaks off wherever a test wants, and counts what it got."""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Self

import pytest
import uvloop

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}

BOUND = 5.0
OK_BODY = b'{"messages":[{"id":"wamid.X"}]}'
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(OK_BODY),
    OK_BODY,
)


class GoneError(Exception):
    """The client went away, or the test is over."""


class Peer:
    """One accepted connection, seen from the server."""

    def __init__(self, sock: socket.socket, stop: threading.Event) -> None:
        self._sock = sock
        self._stop = stop
        self.received = b""
        self.requests: list[bytes] = []
        self._rest = b""

    def read(self, size: int = 65_536) -> bytes:
        try:
            data = self._sock.recv(size)
        except OSError as error:
            raise GoneError from error
        if not data:
            raise GoneError
        self.received += data
        return data

    def read_request(self) -> bytes:
        """One whole request with its body, as its Content-Length says."""
        while b"\r\n\r\n" not in self._rest:
            self._rest += self.read()
        head, _, rest = self._rest.partition(b"\r\n\r\n")
        length = _content_length(head)
        while len(rest) < length:
            rest += self.read()
        self._rest = rest[length:]
        self.requests.append(head + b"\r\n\r\n" + rest[:length])
        return self.requests[-1]

    def send(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except OSError as error:
            raise GoneError from error

    def stall(self, seconds: float = BOUND) -> None:
        """Keep the connection open and silent until the test is over."""
        if self._stop.wait(seconds) or seconds == BOUND:
            raise GoneError

    def close(self) -> None:
        self._sock.close()

    def reset(self) -> None:
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


Act = Callable[[Peer], None]


def answer(peer: Peer) -> None:
    peer.read_request()
    peer.send(OK)


def answers(peer: Peer) -> None:
    while True:
        answer(peer)


class Server:
    """Plays one act per connection, in order, and answers well on every further one."""

    def __init__(self, *acts: Act) -> None:
        self._acts = list(acts)
        self._stop = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(BOUND)
        self.port: int = self._listener.getsockname()[1]
        self.peers: list[Peer] = []
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def received(self) -> bytes:
        return b"".join(peer.received for peer in self.peers)

    def count(self, body: bytes) -> int:
        """Whole requests with this body; two would be a hidden repeat."""
        return sum(request.endswith(body) for peer in self.peers for request in peer.requests)

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._stop.set()
        with suppress(OSError):
            # Closing alone does not wake an accept() under way on Linux.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(BOUND * 2)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.settimeout(BOUND)
            peer = Peer(sock, self._stop)
            self.peers.append(peer)
            act = self._acts.pop(0) if self._acts else answers
            thread = threading.Thread(target=self._play, args=(act, peer))
            self._threads.append(thread)
            thread.start()

    @staticmethod
    def _play(act: Act, peer: Peer) -> None:
        with suppress(GoneError):
            act(peer)
        peer.close()


def on_both_loops(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[str], None]:
    """uvloop writes, closes and fails differently, and is what runs in production."""

    @pytest.mark.parametrize("loop", LOOPS)
    def run(loop: str) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(test())

    return run
