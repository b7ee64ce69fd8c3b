"""The send against httpx's own test doubles, in the seam where the real transport stands."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable

import httpx
import pytest
from pytest_httpx import HTTPXMock
from typing_extensions import override

from services.sender.pipeline.reply import Lost, NotSent, Reason, Replied, Reply
from services.sender.pipeline.send import Outlet
from services.sender.pipeline.transport import Exchange

BODY = json.dumps({"to": "+12025550142"}).encode()
TOKEN = "very-secret"
Handle = Callable[[httpx.Request], httpx.Response | Awaitable[httpx.Response]]


async def post(handle: Handle, graph_url: str = "https://graph.example") -> Reply:
    outlet = Outlet(httpx.MockTransport(handle), graph_url, "v23.0", read_timeout=7)  # type: ignore[arg-type]
    return await outlet.post("15550", "marketing_messages", BODY, TOKEN)


@pytest.mark.parametrize("graph_url", ["https://graph.example", "https://graph.example/"])
async def test_what_is_sent(graph_url: str) -> None:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"messages": []})

    reply = await post(handle, graph_url)

    assert isinstance(reply, Replied)
    assert (reply.http_status, json.loads(reply.body)) == (200, {"messages": []})
    assert reply.headers["content-type"] == "application/json"
    (request,) = seen
    assert (request.method, request.content) == ("POST", BODY)
    assert str(request.url) == "https://graph.example/v23.0/15550/marketing_messages"
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"].startswith("headrace/")
    assert request.extensions["timeout"] == {"connect": 5.0, "pool": 5.0, "read": 7, "write": 7}


@pytest.mark.parametrize("status", [302, 400, 429, 500, 502])
async def test_any_whole_response_is_a_reply(status: int) -> None:
    reply = await post(lambda _: httpx.Response(status, html="<p>sorry</p>"))

    assert isinstance(reply, Replied)
    assert (reply.http_status, reply.body) == (status, b"<p>sorry</p>")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (httpx.ConnectError, NotSent(Reason.CONNECT)),
        (httpx.ConnectTimeout, NotSent(Reason.CONNECT_TIMEOUT)),
        (httpx.PoolTimeout, NotSent(Reason.POOL_TIMEOUT)),
        (httpx.ReadTimeout, Lost(Reason.READ_TIMEOUT)),
        (httpx.WriteTimeout, Lost(Reason.READ_TIMEOUT)),
        (httpx.ReadError, Lost(Reason.RESET)),
        (httpx.WriteError, Lost(Reason.RESET)),
        (httpx.RemoteProtocolError, Lost(Reason.GARBLED)),
        (httpx.LocalProtocolError, Lost(Reason.UNEXPECTED)),
        (httpx.ProxyError, Lost(Reason.UNEXPECTED)),
        (httpx.DecodingError, Lost(Reason.UNEXPECTED)),
        (httpx.CloseError, Lost(Reason.UNEXPECTED)),
    ],
)
async def test_an_error_is_named_and_says_nothing_of_its_own(
    kind: type[httpx.RequestError], expected: Reply
) -> None:
    def handle(_: httpx.Request) -> httpx.Response:
        raise kind(f"{TOKEN} at https://graph.example for +12025550142")

    reply = await post(handle)

    assert reply == expected
    assert TOKEN not in repr(reply)


async def test_a_reason_that_the_transport_gives_is_kept() -> None:
    def handle(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError(Reason.DNS)

    assert await post(handle) == NotSent(Reason.DNS)


async def test_a_body_that_breaks_off_is_lost(httpx_mock: HTTPXMock) -> None:
    stream = _Broken()
    httpx_mock.add_response(stream=stream, url="https://graph.example/v1/1/messages")
    outlet = Outlet(httpx.AsyncHTTPTransport(), "https://graph.example", "v1")

    assert await outlet.post("1", "messages", BODY, TOKEN) == Lost(Reason.RESET)
    assert stream.closed


class _Broken(httpx.AsyncByteStream):
    closed = False

    @override
    async def __aiter__(self) -> AsyncGenerator[bytes]:
        yield b'{"messages"'
        raise httpx.ReadError(TOKEN)

    @override
    async def aclose(self) -> None:
        self.closed = True


async def cancelled(*, told: bool | None) -> Reply:
    reached = asyncio.Event()

    async def handle(request: httpx.Request) -> httpx.Response:
        exchange: Exchange = request.extensions["exchange"]
        if told is not None:
            exchange.handed_over = told
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.create_task(post(handle))
    await reached.wait()
    task.cancel()
    return await task


async def test_cancelled_before_the_hand_over_is_raised() -> None:
    with pytest.raises(asyncio.CancelledError):
        await cancelled(told=False)


async def test_cancelled_after_the_hand_over_is_lost() -> None:
    assert await cancelled(told=True) == Lost(Reason.CANCELLED)


async def test_cancelled_under_a_transport_that_does_not_tell_is_lost() -> None:
    assert await cancelled(told=None) == Lost(Reason.CANCELLED)


async def test_neither_body_nor_headers_show_in_a_repr() -> None:
    reply = await post(lambda _: httpx.Response(200, json={"to": "+12025550142"}))

    assert repr(reply) == "Replied(http_status=200)"
