"""What fails before a request is handed over is not sent: the server saw none of it."""

import asyncio
import math
import socket
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager

import httpx
import pytest
from raw_server import BOUND, Act, GoneError, Peer, Server, answer, on_both_loops
from waiting import until

from services.sender.pipeline.reply import Lost, NotSent, Reason, Replied, Reply
from services.sender.pipeline.send import Outlet
from services.sender.pipeline.transport import AiohttpTransport, Exchange

TIMEOUT = 0.2
BODY = b'{"to":"somebody"}'
TOKEN = "secret"


@asynccontextmanager
async def outlet_to(
    url: str, *, connections: int = 10, proxy: str | None = None, seconds: float = BOUND
) -> AsyncGenerator[Outlet]:
    transport = AiohttpTransport(max_connections=connections, proxy=proxy)
    yield Outlet(transport, url, "v1", connect_timeout=seconds, read_timeout=seconds)
    await transport.aclose()


async def post(outlet: Outlet, token: str = TOKEN) -> Reply:
    return await outlet.post("1", "messages", BODY, token)


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def full_backlog() -> Generator[str]:
    """A listener that accepts nobody and whose queue is full: the next connect hangs."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.settimeout(0)
            filler.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@on_both_loops
async def test_refused() -> None:
    async with outlet_to(f"http://127.0.0.1:{unused_port()}") as outlet:
        assert await post(outlet) == NotSent(Reason.REFUSED)


@on_both_loops
async def test_refused_when_the_server_went_away_between_two_requests() -> None:
    with Server(answer) as server:
        async with outlet_to(server.url) as outlet:
            assert isinstance(await post(outlet), Replied)
            server.__exit__(None, None, None)
            assert await post(outlet) == NotSent(Reason.REFUSED)
        assert server.count(BODY) == 1


@on_both_loops
async def test_an_unknown_name() -> None:
    async with outlet_to("https://nowhere.invalid") as outlet:
        # A resolver that is itself away answers later than we wait.
        assert await post(outlet) in {NotSent(Reason.DNS), NotSent(Reason.CONNECT_TIMEOUT)}


@on_both_loops
async def test_a_connect_that_hangs() -> None:
    with full_backlog() as url:
        async with outlet_to(url, seconds=TIMEOUT) as outlet:
            assert await post(outlet) == NotSent(Reason.CONNECT_TIMEOUT)


def garbage(peer: Peer) -> None:
    peer.read()
    peer.send(b"SSH-2.0-OpenSSH_9.6\r\n")


def hang_up(peer: Peer) -> None:
    peer.read()


def reset(peer: Peer) -> None:
    peer.read(10)
    peer.reset()


@pytest.mark.parametrize(
    ("act", "reasons"),
    [
        (garbage, {Reason.TLS}),
        (hang_up, {Reason.CONNECT, Reason.TLS}),
        (reset, {Reason.CONNECT, Reason.TLS}),
        (Peer.stall, {Reason.CONNECT_TIMEOUT}),
    ],
)
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_tls_handshake_that_fails(loop: str, act: Act, reasons: set[Reason]) -> None:
    async def scenario() -> None:
        with Server(*[act] * 5) as server:
            seconds = TIMEOUT if act is Peer.stall else BOUND
            url = server.url.replace("http:", "https:")
            async with outlet_to(url, seconds=seconds) as outlet:
                result = await post(outlet)
            assert isinstance(result, NotSent)
            assert result.reason in reasons
            assert BODY not in server.received

    run = on_both_loops(scenario)
    run(loop)


@on_both_loops
async def test_a_full_pool() -> None:
    with Server(Peer.stall) as server:
        async with outlet_to(server.url, connections=1, seconds=TIMEOUT * 5) as outlet:
            first = asyncio.create_task(outlet.post("1", "messages", b"first", TOKEN))
            await until(lambda: server.peers)
            other = Outlet(outlet._transport, server.url, "v1", connect_timeout=0.05)
            assert await post(other) == NotSent(Reason.POOL_TIMEOUT)
            assert await first == Lost(Reason.READ_TIMEOUT)
        assert BODY not in server.received


@on_both_loops
async def test_too_late_to_leave() -> None:
    """Whatever kept it: a process may stand still at any moment."""
    with Server() as server:
        async with outlet_to(server.url) as outlet:
            fresh = await outlet.post("1", "messages", BODY, TOKEN, time.monotonic() - 0.001)
            assert fresh == NotSent(Reason.STALE)
            in_time = await outlet.post("1", "messages", BODY, TOKEN, time.monotonic() + BOUND)
            assert isinstance(in_time, Replied)
            reused = await outlet.post("1", "messages", BODY, TOKEN, time.monotonic() - 0.001)
            assert reused == NotSent(Reason.STALE)
            assert isinstance(await post(outlet), Replied)
        assert server.count(BODY) == 2


class Frozen(Exchange):
    """Its process stands still between the connection that it got and the write."""

    @property
    def latest(self) -> float:
        return -math.inf if self.handed_over else math.inf

    @latest.setter
    def latest(self, _: float) -> None: ...


@on_both_loops
async def test_too_late_to_leave_with_a_connection_in_its_hand() -> None:
    with Server() as server:
        transport = AiohttpTransport()
        exchange = Frozen()
        request = httpx.Request("POST", server.url, content=BODY, extensions={"exchange": exchange})
        with pytest.raises(httpx.ConnectError, match=Reason.STALE):
            await transport.handle_async_request(request)
        await transport.aclose()
        assert not exchange.handed_over
        assert server.received == b""


@on_both_loops
async def test_the_place_in_the_pool_comes_back_after_every_end() -> None:
    with Server(hang_up, Peer.stall) as server:
        async with outlet_to(server.url, connections=1) as outlet:
            assert await post(outlet) == Lost(Reason.DISCONNECTED)
            hasty = Outlet(outlet._transport, server.url, "v1", read_timeout=TIMEOUT)
            assert await post(hasty) == Lost(Reason.READ_TIMEOUT)
            assert isinstance(await post(outlet), Replied)


@on_both_loops
async def test_a_token_or_an_address_that_cannot_be_sent() -> None:
    with Server() as server:
        async with outlet_to(server.url) as outlet:
            for token in ("line\nbreak", "nul\0", "umlaut-ü", "\ud800"):
                assert await post(outlet, token) == NotSent(Reason.BAD_REQUEST)
            bad_id = await outlet.post("1\n", "messages", BODY, "secret")
            assert bad_id == NotSent(Reason.BAD_REQUEST)
        async with outlet_to("gopher://127.0.0.1") as outlet:
            assert await post(outlet) == NotSent(Reason.BAD_REQUEST)
        assert not server.peers


@on_both_loops
async def test_a_closed_transport() -> None:
    async with outlet_to(f"http://127.0.0.1:{unused_port()}") as outlet:
        pass
    assert await post(outlet) == NotSent(Reason.CONNECT)


@on_both_loops
async def test_a_proxy_that_is_away_or_refuses() -> None:
    def refuse(peer: Peer) -> None:
        peer.read()
        peer.send(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")

    async with outlet_to("https://x.invalid", proxy=f"http://127.0.0.1:{unused_port()}") as outlet:
        assert await post(outlet) == NotSent(Reason.REFUSED)
    with Server(refuse) as proxy:
        async with outlet_to("https://x.invalid", proxy=proxy.url) as outlet:
            assert await post(outlet) == NotSent(Reason.CONNECT)
        assert proxy.received.startswith(b"CONNECT x.invalid:443")
        assert b"secret" not in proxy.received


@on_both_loops
async def test_a_proxy_is_used_when_it_is_set() -> None:
    with Server() as proxy:
        async with outlet_to("http://x.invalid", proxy=proxy.url) as outlet:
            assert isinstance(await post(outlet), Replied)
        assert proxy.received.startswith(b"POST http://x.invalid/v1/1/messages HTTP/1.1\r\n")


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{unused_port()}")

    async def scenario() -> None:
        with Server() as server:
            async with outlet_to(server.url) as outlet:
                assert isinstance(await post(outlet), Replied)

    asyncio.run(scenario())


@on_both_loops
async def test_cancelled_before_it_is_handed_over() -> None:
    with full_backlog() as url:
        async with outlet_to(url) as outlet:
            task = asyncio.create_task(post(outlet))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


@on_both_loops
async def test_cancelled_after_it_was_handed_over() -> None:
    def read_and_stall(peer: Peer) -> None:
        peer.read_request()
        peer.stall()

    with Server(read_and_stall) as server:
        async with outlet_to(server.url) as outlet:
            task = asyncio.create_task(post(outlet))
            await until(lambda: server.count(BODY))
            task.cancel()
            assert await task == Lost(Reason.CANCELLED)
        assert server.count(BODY) == 1


@on_both_loops
async def test_the_flag_of_the_exchange_follows_the_request() -> None:
    seen: list[bool] = []
    exchange = Exchange()

    def look(peer: Peer) -> None:
        peer.read()
        seen.append(exchange.handed_over)
        raise GoneError

    transport = AiohttpTransport()
    for url, expected in ((f"http://127.0.0.1:{unused_port()}", False), ("", True)):
        with Server(look) as server:
            request = httpx.Request(
                "POST", url or server.url, content=BODY, extensions={"exchange": exchange}
            )
            with pytest.raises(httpx.TransportError):
                await transport.handle_async_request(request)
            assert exchange.handed_over is expected
    await transport.aclose()
    assert seen == [True]
