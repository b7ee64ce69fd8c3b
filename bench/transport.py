"""Messages per second through httpx's own transport and through ours, 200 in flight, one run."""

import asyncio
import time
from multiprocessing import Process, Queue
from typing import cast

import httpx
import uvloop
from typing_extensions import override

from services.sender.pipeline.reply import Replied
from services.sender.pipeline.send import Outlet
from services.sender.pipeline.transport import AiohttpTransport

IN_FLIGHT = 200
SECONDS = 7.0
DELAY = 0.05
BODY = b'{"messaging_product":"whatsapp","to":"+12025550142","type":"template","x":"%s"}' % (
    b"x" * 500
)
REPLY_BODY = b'{"messaging_product":"whatsapp","messages":[{"id":"wamid.HBgLMTIwMjU1NTAxNDI"}]}'
REPLY = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=UTF-8\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(REPLY_BODY), REPLY_BODY)
)


class _Meta(asyncio.Protocol):
    """Answers each request after a fixed delay; it only looks where a body ends."""

    transport: asyncio.Transport
    waiting = b""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    @override
    def data_received(self, data: bytes) -> None:
        self.waiting += data
        if self.waiting.endswith(b'"}'):
            self.waiting = b""
            asyncio.get_running_loop().call_later(DELAY, self.transport.write, REPLY)


async def _serve(port: "Queue[int]") -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Meta, "127.0.0.1", 0, backlog=IN_FLIGHT * 2)
    port.put(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _run_server(port: "Queue[int]") -> None:
    uvloop.run(_serve(port))


async def _send_until(outlet: Outlet, end: float) -> int:
    answered = 0
    while time.monotonic() < end:
        answered += isinstance(await outlet.post("1", "messages", BODY, "x"), Replied)
    return answered


async def _measure(transport: httpx.AsyncBaseTransport, url: str) -> tuple[float, float]:
    """Messages per second, and microseconds of CPU per message."""
    outlet = Outlet(transport, url, "v1")
    start, cpu = time.monotonic(), time.process_time()
    sends = [_send_until(outlet, start + SECONDS) for _ in range(IN_FLIGHT)]
    answered = sum(await asyncio.gather(*sends))
    spent = time.process_time() - cpu
    await transport.aclose()
    return answered / (time.monotonic() - start), spent * 1e6 / max(answered, 1)


async def _compare(url: str) -> None:
    limits = httpx.Limits(max_connections=IN_FLIGHT, max_keepalive_connections=IN_FLIGHT)
    theirs, their_cpu = await _measure(httpx.AsyncHTTPTransport(limits=limits), url)
    ours, our_cpu = await _measure(AiohttpTransport(), url)
    print(f"httpx's transport  {theirs:8.0f} msg/s  {their_cpu:8.0f} us CPU/msg")
    print(f"our transport      {ours:8.0f} msg/s  {our_cpu:8.0f} us CPU/msg")
    print(f"ratio              {ours / max(theirs, 1):8.1f}")


def main() -> None:
    port: Queue[int] = Queue()
    server = Process(target=_run_server, args=(port,), daemon=True)
    server.start()
    try:
        uvloop.run(_compare(f"http://127.0.0.1:{port.get(timeout=10)}"))
    finally:
        server.kill()
        server.join(5)


if __name__ == "__main__":
    main()
