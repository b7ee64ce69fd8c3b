"""The lean HTTP/1.1 client of the webhooks: keep-alive, one request at a time per connection."""

import asyncio
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

import httptools
from typing_extensions import override

_CONNECT_S = 5.0
# A target that refuses is left alone this long: trying once per waiting webhook helps nobody.
_REFUSED_S = 0.1

#: Called once per request with the HTTP status, or 0 when none came.
Done = Callable[[int], None]


class Poster:
    """At most `limit` connections to one URL."""

    def __init__(self, url: str, limit: int, timeout_s: float) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._head = _head(parts.path or "/", parts.query, parts.netloc)
        self._limit, self._timeout_s = limit, timeout_s
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._refused_until = 0.0

    def free(self) -> bool:
        """Whether a request may be handed over now."""
        if self._idle:
            return True
        busy = len(self._open) + len(self._connecting)
        return busy < self._limit and asyncio.get_running_loop().time() >= self._refused_until

    def post(self, body: bytes, signature: str, done: Done) -> None:
        """Send once; only while `free`."""
        request = self._head % (signature.encode(), len(body)) + body
        if self._idle:
            self._idle.pop().send(request, done)
            return
        task = asyncio.create_task(self._connect(request, done))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def close(self) -> None:
        """Drop everything; requests under way end with 0."""
        for task in self._connecting:
            task.cancel()
        for connection in list(self._open):
            connection.abort()

    def keep(self, connection: "_Connection") -> None:
        """Use again."""
        self._idle.append(connection)

    def forget(self, connection: "_Connection") -> None:
        """It is closed."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def _connect(self, request: bytes, done: Done) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self, self._timeout_s), self._host, self._port
                )
        except OSError:  # TimeoutError is one of them
            self._refused_until = loop.time() + _REFUSED_S
            done(0)
            return
        except asyncio.CancelledError:
            done(0)
            raise
        self._open.add(connection)
        connection.send(request, done)


class _Connection(asyncio.Protocol):
    def __init__(self, poster: Poster, timeout_s: float) -> None:
        self._poster, self._timeout_s = poster, timeout_s
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._done: Done | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def send(self, request: bytes, done: Done) -> None:
        if self._transport is None or self._transport.is_closing():
            done(0)
            return
        self._done = done
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._timeout_s, self.abort)
        self._transport.write(request)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.abort()

    def on_message_complete(self) -> None:
        """Called by the parser."""
        if self._parser.should_keep_alive():
            self._poster.keep(self)
        else:
            self.abort()
        self._finish(self._parser.get_status_code())

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._poster.forget(self)
        self._finish(0)

    def _finish(self, status: int) -> None:
        done, self._done = self._done, None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if done is not None:
            done(status)


def _head(path: str, query: str, host: str) -> bytes:
    """Request head with room for signature and length; a percent sign of the URL is kept."""
    target = f"{path}?{query}" if query else path
    fixed = f"POST {target} HTTP/1.1\r\nhost: {host}\r\n".replace("%", "%%")
    return (
        f"{fixed}user-agent: facebookexternalua\r\ncontent-type: application/json\r\n"
        "x-hub-signature-256: %b\r\ncontent-length: %d\r\n\r\n"
    ).encode()
