"""Keep-alive connections: reused while they are clean, and never a reply of somebody else's."""

import asyncio
import threading
from collections.abc import AsyncGenerator

import httpx
import pytest
from raw_server import BOUND, OK, Act, Peer, Server, answer, answers, on_both_loops

from services.sender.pipeline.reply import Lost, Reason, Replied
from services.sender.pipeline.send import Outlet
from services.sender.pipeline.transport import AiohttpTransport

UNASKED = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"
FIRST, SECOND = b'{"to":"first"}', b'{"to":"second"}'


def outlet_to(transport: AiohttpTransport, url: str) -> Outlet:
    return Outlet(transport, url, "v1", connect_timeout=BOUND, read_timeout=BOUND)


@on_both_loops
async def test_one_connection_carries_many_requests() -> None:
    with Server() as server:
        transport = AiohttpTransport()
        outlet = outlet_to(transport, server.url)
        for _ in range(20):
            assert isinstance(await outlet.post("1", "messages", FIRST, "secret"), Replied)
        await transport.aclose()
        assert len(server.peers) == 1


def spoil(how: Act, idle: threading.Event, done: threading.Event) -> Act:
    def act(peer: Peer) -> None:
        answer(peer)
        assert idle.wait(BOUND)
        how(peer)
        done.set()
        peer.stall()

    return act


@pytest.mark.parametrize("how", [Peer.close, Peer.reset, lambda peer: peer.send(UNASKED)])
@pytest.mark.parametrize("noticed", ["by the loop", "not yet"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_connection_spoilt_while_idle_is_not_used(loop: str, noticed: str, how: Act) -> None:
    idle, done = threading.Event(), threading.Event()

    async def scenario() -> None:
        with Server(spoil(how, idle, done)) as server, Server() as other:
            transport = AiohttpTransport()
            outlet = outlet_to(transport, server.url)
            assert isinstance(await outlet.post("1", "messages", FIRST, "secret"), Replied)
            idle.set()
            # The loop is held on purpose, so that it cannot have read what came.
            assert done.wait(BOUND)
            if noticed == "by the loop":
                await outlet_to(transport, other.url).post("1", "messages", FIRST, "secret")
            reply = await outlet.post("1", "messages", SECOND, "secret")
            await transport.aclose()
            assert isinstance(reply, Replied)
            assert reply.http_status == 200
            assert (len(server.peers), server.count(SECOND)) == (2, 1)

    on_both_loops(scenario)(loop)


@on_both_loops
async def test_a_late_reply_is_not_the_next_ones() -> None:
    late = threading.Event()

    def answer_late(peer: Peer) -> None:
        peer.read_request()
        assert late.wait(BOUND)
        peer.send(OK.replace(b"wamid.X", b"wamid.Y"))
        answers(peer)

    with Server(answer_late) as server:
        transport = AiohttpTransport()
        outlet = outlet_to(transport, server.url)
        hasty = Outlet(transport, server.url, "v1", read_timeout=0.2)
        assert await hasty.post("1", "messages", FIRST, "secret") == Lost(Reason.READ_TIMEOUT)
        late.set()
        reply = await outlet.post("1", "messages", SECOND, "secret")
        await transport.aclose()
        assert isinstance(reply, Replied)
        assert b"wamid.X" in reply.body


@on_both_loops
async def test_two_replies_to_one_request_are_not_the_next_ones() -> None:
    def answer_twice(peer: Peer) -> None:
        peer.read_request()
        peer.send(OK + OK.replace(b"wamid.X", b"wamid.Y"))
        answers(peer)

    with Server(answer_twice) as server:
        transport = AiohttpTransport()
        outlet = outlet_to(transport, server.url)
        for body in (FIRST, SECOND):
            reply = await outlet.post("1", "messages", body, "secret")
            assert isinstance(reply, Replied)
            assert b"wamid.X" in reply.body
        await transport.aclose()


@on_both_loops
async def test_many_at_once_each_get_their_own_reply() -> None:
    def echo(peer: Peer) -> None:
        while True:
            body = peer.read_request().partition(b"\r\n\r\n")[2]
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    with Server(*[echo] * 100) as server:
        transport = AiohttpTransport(max_connections=20)
        outlet = Outlet(transport, server.url, "v1")
        bodies = [b'{"n":%d}' % n for n in range(200)]
        replies = await asyncio.gather(*(outlet.post("1", "messages", b, "s") for b in bodies))
        await transport.aclose()
        assert [r.body for r in replies if isinstance(r, Replied)] == bodies
        assert len(server.peers) <= 20


@on_both_loops
async def test_a_cookie_is_not_kept() -> None:
    def set_cookie(peer: Peer) -> None:
        peer.read_request()
        peer.send(OK.replace(b"Content-Type", b"Set-Cookie: a=b\r\nContent-Type"))
        answers(peer)

    with Server(set_cookie) as server:
        transport = AiohttpTransport()
        outlet = outlet_to(transport, server.url)
        for body in (FIRST, SECOND):
            assert isinstance(await outlet.post("1", "messages", body, "secret"), Replied)
        await transport.aclose()
        assert server.count(SECOND) == 1
        assert b"cookie" not in server.received.lower()


@on_both_loops
async def test_the_request_goes_out_as_it_is() -> None:
    with Server() as server:
        transport = AiohttpTransport()
        await outlet_to(transport, server.url).post("15550", "messages", FIRST, "secret")
        await transport.aclose()
        head, _, body = server.received.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        assert body == FIRST
        assert lines[0] == b"POST /v1/15550/messages HTTP/1.1"
        names = sorted(line.partition(b":")[0].lower() for line in lines[1:])
        assert names == [
            b"authorization",
            b"content-length",
            b"content-type",
            b"host",
            b"user-agent",
        ]
        assert b"Authorization: Bearer secret" in lines


@on_both_loops
async def test_it_serves_a_whole_client_too() -> None:
    """Other calls than sends may put `httpx.AsyncClient` on it."""
    with Server() as server:
        async with httpx.AsyncClient(transport=AiohttpTransport()) as client:
            assert (await client.get(server.url)).json()
            streamed = await client.post(server.url, content=_pieces())
            assert streamed.status_code == 200
        assert server.count(FIRST + SECOND) == 1
        assert b"transfer-encoding" not in server.received.lower()


async def _pieces() -> AsyncGenerator[bytes]:
    yield FIRST
    yield SECOND
