"""Every way an exchange can break, against real sockets: it is lost, and never repeated."""

import asyncio
import gzip

import pytest
from raw_server import BOUND, LOOPS, OK, OK_BODY, Act, Peer, Server, answer

from services.sender.pipeline.reply import Lost, NotSent, Reason, Replied, Reply
from services.sender.pipeline.send import Outlet
from services.sender.pipeline.transport import AiohttpTransport

TIMEOUT = 0.2
WARM, BODY = b'{"to":"warm"}', b'{"to":"' + b"x" * 600 + b'"}'
HTML = b"<html>Bad Gateway</html>"


def read_some_then_reset(peer: Peer) -> None:
    peer.read(40)
    peer.reset()


def read_all_then_close(peer: Peer) -> None:
    peer.read_request()


def read_all_then_reset(peer: Peer) -> None:
    peer.read_request()
    peer.reset()


def reply(data: bytes, then: Act = lambda _: None) -> Act:
    def act(peer: Peer) -> None:
        peer.read_request()
        peer.send(data)
        then(peer)

    return act


def drip(peer: Peer) -> None:
    while True:
        peer.send(b"x")
        peer.stall(0.02)


def drip_continue(peer: Peer) -> None:
    while True:
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        peer.stall(0.02)


def head(*headers: bytes) -> bytes:
    return b"\r\n".join((b"HTTP/1.1 200 OK", *headers)) + b"\r\n\r\n"


LONG = head(b"Content-Length: 2000000")
CHUNKED = head(b"Transfer-Encoding: chunked")
HALF_CHUNK = CHUNKED + b"10\r\n{"
GZIPPED = gzip.compress(OK_BODY)
BOMB = gzip.compress(b" " * 4_000_000)

BROKEN: dict[str, tuple[Act, Reason | None]] = {
    "part of the request read, then reset": (read_some_then_reset, None),
    "request read, then closed": (read_all_then_close, Reason.DISCONNECTED),
    "request read, then reset": (read_all_then_reset, Reason.RESET),
    "stall before the reply": (reply(b"", Peer.stall), Reason.READ_TIMEOUT),
    "half the head, then closed": (reply(OK[:30]), Reason.DISCONNECTED),
    "half the head, then reset": (reply(OK[:30], Peer.reset), Reason.RESET),
    "half the head, then stall": (reply(OK[:30], Peer.stall), Reason.READ_TIMEOUT),
    "head, then closed": (reply(LONG), Reason.GARBLED),
    "head, then stall": (reply(LONG, Peer.stall), Reason.READ_TIMEOUT),
    "half the body, then closed": (reply(OK[:-9]), Reason.GARBLED),
    "half the body, then reset": (reply(OK[:-9], Peer.reset), None),
    "half the body, then stall": (reply(OK[:-9], Peer.stall), Reason.READ_TIMEOUT),
    "chunk cut off": (reply(HALF_CHUNK), Reason.GARBLED),
    "chunks without an end, closed": (reply(CHUNKED + b"1\r\n{\r\n"), Reason.GARBLED),
    "chunk stalls": (reply(HALF_CHUNK, Peer.stall), Reason.READ_TIMEOUT),
    "chunk size is garbage": (reply(CHUNKED + b"zz\r\n{"), Reason.GARBLED),
    "status line is garbage": (reply(b"\x15\x03\x01 hello\r\n\r\n"), Reason.GARBLED),
    "body trickles": (reply(LONG, drip), Reason.READ_TIMEOUT),
    "head trickles": (reply(b"HTTP/1.1 200 OK\r\nX: ", drip), Reason.READ_TIMEOUT),
    "100 Continue for ever": (reply(b"", drip_continue), Reason.READ_TIMEOUT),
    "body too large": (reply(LONG + b" " * 2_000_000), Reason.TOO_LARGE),
    "body too large when unpacked": (
        reply(head(b"Content-Encoding: gzip", b"Content-Length: %d" % len(BOMB)) + BOMB),
        Reason.TOO_LARGE,
    ),
    "body is not what it was coded as": (
        reply(head(b"Content-Encoding: gzip", b"Content-Length: 9") + b"not gzip!"),
        Reason.GARBLED,
    ),
}
WHOLE: dict[str, tuple[Act, int, bytes]] = {
    "200": (answer, 200, OK_BODY),
    "200, then closed": (reply(OK), 200, OK_BODY),
    "200 after 100 Continue": (reply(b"HTTP/1.1 100 Continue\r\n\r\n" + OK), 200, OK_BODY),
    "200 in chunks": (reply(CHUNKED + b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"), 200, b"{}"),
    "200 until the end": (reply(head(b"Connection: close") + OK_BODY), 200, OK_BODY),
    "200 in gzip": (
        reply(head(b"Content-Encoding: gzip", b"Content-Length: %d" % len(GZIPPED)) + GZIPPED),
        200,
        OK_BODY,
    ),
    "502 in HTML": (
        reply(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: %d\r\n\r\n%s" % (len(HTML), HTML)),
        502,
        HTML,
    ),
    "302 is not followed": (
        reply(b"HTTP/1.1 302 Found\r\nLocation: /v1/1/messages\r\nContent-Length: 0\r\n\r\n"),
        302,
        b"",
    ),
}


async def exchange(url: str, seconds: float, *, reused: bool) -> Reply:
    transport = AiohttpTransport()
    try:
        if reused:
            warm = await Outlet(transport, url, "v1").post("1", "messages", WARM, "secret")
            assert isinstance(warm, Replied)
        outlet = Outlet(transport, url, "v1", read_timeout=seconds)
        return await outlet.post("1", "messages", BODY, "secret")
    finally:
        await transport.aclose()


def run(loop: str, act: Act, connection: str, seconds: float = BOUND) -> tuple[Reply, Server]:
    def second(peer: Peer) -> None:
        answer(peer)
        act(peer)

    reused = connection == "reused"
    with (
        Server(second if reused else act) as server,
        asyncio.Runner(loop_factory=LOOPS[loop]) as runner,
    ):
        result = runner.run(exchange(server.url, seconds, reused=reused))
    return result, server


@pytest.mark.parametrize("connection", ["fresh", "reused"])
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("row", BROKEN)
def test_a_broken_exchange_is_lost_and_not_repeated(row: str, loop: str, connection: str) -> None:
    act, reason = BROKEN[row]
    # Short only where the end of patience is what is asked, so that a busy machine changes nothing.
    seconds = TIMEOUT if reason is Reason.READ_TIMEOUT else BOUND
    result, server = run(loop, act, connection, seconds)

    assert isinstance(result, Lost)
    assert reason in {None, result.reason}
    assert len(server.peers) == 1
    assert server.count(BODY) == (0 if act is read_some_then_reset else 1)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_closed_before_it_was_read_is_lost(loop: str) -> None:
    """The request may be in the kernel of a server that reads it all the same: nobody can tell."""
    result, server = run(loop, Peer.close, "fresh")

    assert isinstance(result, Lost)
    assert len(server.peers) == 1


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_reset_at_once_is_not_sent_only_while_connecting(loop: str) -> None:
    """Which of the two is a race of kernels; in neither is it sent again."""
    result, server = run(loop, Peer.reset, "fresh")

    assert result in {NotSent(Reason.CONNECT), Lost(Reason.RESET), Lost(Reason.DISCONNECTED)}
    assert len(server.peers) == 1
    assert server.received == b""


@pytest.mark.parametrize("connection", ["fresh", "reused"])
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("row", WHOLE)
def test_a_whole_reply_is_a_reply_whatever_it_says(row: str, loop: str, connection: str) -> None:
    act, status, body = WHOLE[row]
    result, server = run(loop, act, connection)

    assert isinstance(result, Replied)
    assert (result.http_status, result.body) == (status, body)
    assert len(server.peers) == 1
    assert server.count(BODY) == 1
