"""httpx's transport interface over aiohttp, exact about whether a request may have left.

aiohttp's exception classes do not tell that: a reset is a ClientOSError while connecting and also
after the request was written. What tells it is the stage. A request is handed over when the
connector gives it an open connection; before that no byte of it can have left, and whatever fails
is a `ConnectError`, `ConnectTimeout` or `PoolTimeout`. From then on nobody knows, and whatever
fails is one of httpx's other errors.
"""

import asyncio
import math
import re
import select
import time
import weakref
from contextvars import ContextVar
from dataclasses import dataclass

import aiohttp
import httpx
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from typing_extensions import override
from yarl import URL

from services.sender.pipeline.reply import Reason

# Meta's replies are some hundred bytes; more than this is not a reply to a send.
MAX_REPLY = 1 << 20
CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 30.0
# Shorter than the idle limits of common front proxies (60 s and more): we close first.
IDLE_SECONDS = 15.0

_UNFIT = re.compile(rb"[^\t\x20-\x7e]")
# A body in one piece goes out with its length; aiohttp has undone the coding of what came back.
_NOT_FORWARDED = frozenset({b"transfer-encoding"})
_NOT_RETURNED = frozenset({b"content-encoding"})
_NO_AUTO_HEADERS = frozenset({"Accept", "Accept-Encoding", "User-Agent", "Content-Type"})


@dataclass(slots=True)
class Exchange:
    """How far a request got; in `request.extensions["exchange"]` the caller can look at any time.

    It starts as handed over, so that a transport that knows nothing of it errs on the safe side.
    After the monotonic time `latest` it is not handed over any more, however it came to be late: a
    process may stand still at any moment.
    """

    handed_over: bool = True
    latest: float = math.inf


@dataclass(frozen=True, slots=True)
class _Stage:
    """An exchange under way, and the time its reply has, running from when it is handed over."""

    exchange: Exchange
    deadline: asyncio.Timeout
    read_timeout: float | None

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.exchange.latest

    def hand_over(self) -> None:
        self.exchange.handed_over = True
        if self.read_timeout is not None:
            now = asyncio.get_running_loop().time()
            self.deadline.reschedule(now + self.read_timeout)


_STAGE: ContextVar[_Stage] = ContextVar("headrace_send_stage")


class _Connector(aiohttp.TCPConnector):
    """Marks the moment of handing over, and never hands a request to a dead or dirty connection."""

    def __init__(self) -> None:
        # The transport counts its requests itself, so that a full pool has its own timeout.
        super().__init__(limit=0, keepalive_timeout=IDLE_SECONDS)
        self._used = weakref.WeakSet[ResponseHandler]()

    @override
    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        while self._was_used(connection) and _is_spoilt(connection):
            connection.close()
            connection = await super().connect(req, traces, timeout)
        _STAGE.get().hand_over()
        return connection

    def _was_used(self, connection: Connection) -> bool:
        protocol = connection.protocol
        if protocol is None or protocol in self._used:
            return True
        self._used.add(protocol)
        return False


class _Body(aiohttp.BytesPayload):
    """A request's body, which goes out in one piece with its headers, in a task of its own."""

    def __init__(self, content: bytes, stage: _Stage) -> None:
        super().__init__(content)
        self._stage = stage

    @override
    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        """Nothing stands between this look at the clock and the socket."""
        if self._stage.is_late:
            self._stage.exchange.handed_over = False
            raise httpx.ConnectError(Reason.STALE)
        await super().write_with_length(writer, content_length)


def _is_spoilt(connection: Connection) -> bool:
    """Whether an idle connection got bytes or an end that nobody asked for.

    A proxy's unasked 408 would be taken for the reply to the next request, and every reply after
    it for its neighbour's. The socket is asked as well, since the loop may not have read it yet.
    """
    protocol, transport = connection.protocol, connection.transport
    if protocol is None or transport is None or protocol.should_close:
        return True
    readable = select.poll()
    readable.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(readable.poll(0))


class AiohttpTransport(httpx.AsyncBaseTransport):
    """One pool of keep-alive connections: no redirects, no cookies, no environment, no repeats.

    Make it inside a running loop and call it directly: `httpx.AsyncClient` costs more than the
    request. The `read` timeout bounds everything after the request is handed over, so a server that
    trickles bytes holds nobody for ever. (aiohttp may repeat a GET once; it never repeats a POST.)
    """

    def __init__(self, *, max_connections: int = 2_000, proxy: str | None = None) -> None:
        self._free = asyncio.Semaphore(max_connections)
        self._session = aiohttp.ClientSession(
            connector=_Connector(),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_NO_AUTO_HEADERS,
            proxy=proxy,
            trust_env=False,
        )

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        exchange = request.extensions.get("exchange") or Exchange()
        exchange.handed_over = False
        timeouts = request.extensions.get("timeout", {})
        body = await request.aread()
        _refuse_unfit_headers(request)
        await self._take_place(timeouts.get("pool", CONNECT_TIMEOUT))
        try:
            async with asyncio.timeout(None) as deadline:
                stage = _Stage(exchange, deadline, timeouts.get("read", READ_TIMEOUT))
                _STAGE.set(stage)
                content = _Body(body, stage) if body else None
                return await self._send(request, content, timeouts.get("connect", CONNECT_TIMEOUT))
        except httpx.TransportError:
            raise
        # Whatever it is, the stage decides what it means; the cause stays on the error.
        except Exception as error:
            raise (_after if exchange.handed_over else _before)(error) from error
        finally:
            self._free.release()

    @override
    async def aclose(self) -> None:
        await self._session.close()

    async def _take_place(self, pool_timeout: float | None) -> None:
        if not self._free.locked():
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout(pool_timeout):
                await self._free.acquire()
        except TimeoutError as error:
            raise httpx.PoolTimeout(Reason.POOL_TIMEOUT) from error

    async def _send(
        self, request: httpx.Request, body: _Body | None, connect_timeout: float | None
    ) -> httpx.Response:
        response = await self._session.request(
            request.method,
            URL(str(request.url), encoded=True),
            headers=_headers(request),
            data=body,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, connect=connect_timeout),
        )
        try:
            return _as_httpx(response, await _read(response))
        except BaseException:
            response.close()
            raise


def _refuse_unfit_headers(request: httpx.Request) -> None:
    """A token with a line break: aiohttp would find out only with a connection in its hand."""
    if any(_UNFIT.search(value) for _, value in request.headers.raw):
        raise httpx.ConnectError(Reason.BAD_REQUEST)


def _headers(request: httpx.Request) -> list[tuple[str, str]]:
    return [
        (name.decode("ascii"), value.decode("ascii"))
        for name, value in request.headers.raw
        if name.lower() not in _NOT_FORWARDED
    ]


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_REPLY:
            raise httpx.RemoteProtocolError(Reason.TOO_LARGE)
    return bytes(body)


def _as_httpx(response: aiohttp.ClientResponse, content: bytes) -> httpx.Response:
    headers = [pair for pair in response.raw_headers if pair[0].lower() not in _NOT_RETURNED]
    return httpx.Response(response.status, headers=headers, content=content)


def _before(error: Exception) -> httpx.TransportError:
    match error:
        case TimeoutError():
            return httpx.ConnectTimeout(Reason.CONNECT_TIMEOUT)
        case aiohttp.ClientConnectorDNSError():
            return httpx.ConnectError(Reason.DNS)
        case aiohttp.ClientSSLError():
            return httpx.ConnectError(Reason.TLS)
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return httpx.ConnectError(Reason.REFUSED)
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return httpx.ConnectError(Reason.BAD_REQUEST)
        case _:
            # What the body raised comes wrapped.
            stale = isinstance(error.__cause__, httpx.ConnectError)
            return httpx.ConnectError(Reason.STALE if stale else Reason.CONNECT)


def _after(error: Exception) -> httpx.TransportError:
    match error:
        case TimeoutError():
            return httpx.ReadTimeout(Reason.READ_TIMEOUT)
        case aiohttp.ServerDisconnectedError():
            return httpx.RemoteProtocolError(Reason.DISCONNECTED)
        case aiohttp.ClientPayloadError() | aiohttp.ClientResponseError():
            return httpx.RemoteProtocolError(Reason.GARBLED)
        case aiohttp.ClientConnectionResetError():
            return httpx.WriteError(Reason.RESET)
        case OSError():
            return httpx.ReadError(Reason.RESET)
        case _:
            return httpx.ReadError(Reason.UNEXPECTED)
