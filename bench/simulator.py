"""How many messages a second, with their webhooks, the simulator carries on one core.

Run: .venv/bin/python bench/simulator.py [--messages 10000] [--runs 4] [--batch 100]

Prints for the simulator and for an app that answers 200 and does nothing else, under the same
load: messages per second until the last reply, the same until the last webhook, and CPU seconds
of the server process per 1,000 messages. "On one core" means that the CPU figure allows it. Of
several runs the cheapest counts. The load keeps a core of its own busy.
"""

import argparse
import asyncio
import json
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from typing_extensions import override

_ROOT = Path(__file__).resolve().parent.parent
_NUMBER = "840000000000002"
_OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
_TIMEOUT_S = 240
# So many, with their webhooks, and the simulator is never what limits a test.
_REQUIRED = 4000


@dataclass(frozen=True, slots=True)
class Result:
    """One run. `settled_s` ends with the last webhook."""

    messages: int
    replied_s: float
    settled_s: float
    cpu_s: float

    def show(self, name: str) -> None:
        """One line per run."""
        print(
            f"{name:<12} {self.messages / self.replied_s:8,.0f} msg/s replied"
            f" {self.messages / self.settled_s:8,.0f} msg/s with webhooks"
            f" {self.cpu_per_thousand:8.3f} CPU s per 1,000"
            f" (one core carries {self.per_core:,.0f}/s)"
        )

    def judge(self) -> None:
        """Whether a core suffices for what the tests need of the simulator."""
        verdict = "holds" if self.per_core >= _REQUIRED else "does NOT hold"
        print(
            f"carried {self.messages / self.settled_s:,.0f} messages/s with webhooks,"
            f" {self.cpu_s / self.settled_s:.2f} core: {_REQUIRED:,}/s on one core {verdict} by CPU"
            f" ({self.per_core:,.0f}/s)"
        )

    @property
    def per_core(self) -> float:
        """Messages per second that keep one core busy."""
        return self.messages / self.cpu_s

    @property
    def cpu_per_thousand(self) -> float:
        """CPU seconds of the server per 1,000 messages."""
        return 1000 * self.cpu_s / self.messages


async def empty(scope: Any, receive: Any, send: Any) -> None:
    """The baseline: read, answer 200, nothing else."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    body = json.dumps({"cpu_seconds": time.process_time()}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Load(asyncio.Protocol):
    """One connection: the next request follows the reply."""

    def __init__(self, serials: list[int], finished: asyncio.Future[None]) -> None:
        self._serials, self._finished = serials, finished
        self.transport: Any = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first."""
        self.transport = transport
        self._next()

    @override
    def data_received(self, data: bytes) -> None:
        """Replies are short: head and body mostly come in one piece, and end with a brace."""
        if not data.startswith(b"HTTP/1.1 200") and b"HTTP/1.1" in data:
            self._finished.set_exception(RuntimeError(data[:300]))
        elif data.endswith(b"}"):
            self._next()

    def _next(self) -> None:
        if self._serials:
            self.transport.write(_request(self._serials.pop()))
        elif not self._finished.done():
            self._finished.set_result(None)


class Receiver(asyncio.Protocol):
    """Takes webhooks in: counts statuses, answers 200 to each POST."""

    missing = 0
    complete = asyncio.Event()

    def __init__(self) -> None:
        self._data = b""
        self._transport: Any = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport = transport

    @override
    def data_received(self, data: bytes) -> None:
        """Answer when the whole body is there."""
        self._data += data
        head, mark, body = self._data.partition(b"\r\n\r\n")
        if not mark or len(body) < int(head.rpartition(b"content-length: ")[2]):
            return
        self.expect(-body.count(b'"timestamp"'))
        self._data = b""
        self._transport.write(_OK)

    @classmethod
    def expect(cls, statuses: int) -> None:
        """So many more (or fewer) are still to come."""
        cls.missing += statuses
        if cls.missing:
            cls.complete.clear()
        else:
            cls.complete.set()


def _request(serial: int) -> bytes:
    body = json.dumps(
        {
            "messaging_product": "whatsapp",
            "recipient_type": "individual",
            "to": f"+1202{serial:07d}",
            "type": "template",
            "biz_opaque_callback_data": f"hr1:{'0' * 32}:{serial + 1}:1",
            "template": {"name": "bench", "language": {"code": "en"}},
        }
    ).encode()
    head = (
        f"POST /v25.0/{_NUMBER}/messages HTTP/1.1\r\nhost: sim\r\nauthorization: Bearer bench\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _call(base: str, path: str, scenario: dict[str, Any] | None = None) -> Any:
    data = json.dumps(scenario).encode() if scenario else None
    request = urllib.request.Request(  # noqa: S310  # loopback
        base + path, data, {"content-type": "application/json"}, method="PUT" if data else "GET"
    )
    with urllib.request.urlopen(request, timeout=5) as reply:  # noqa: S310  # loopback
        return json.loads(reply.read())


@asynccontextmanager
async def _serving(*app: str) -> AsyncGenerator[str, None]:
    """A uvicorn of its own on a free port; yields its base URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = f"--host 127.0.0.1 --port {port} --loop uvloop --http httptools --no-access-log"
    quiet = "--log-level warning --lifespan auto --timeout-keep-alive 75"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uvicorn", *app, *options.split(), *quiet.split()),
        cwd=_ROOT,
        env={**os.environ, "HEADRACE_APP_SECRETS": "bench"},
    )
    base = f"http://127.0.0.1:{port}"
    try:
        await _until_up(base)
        yield base
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 20)


async def _until_up(base: str) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await asyncio.to_thread(_call, base, "/healthz")
            except (urllib.error.URLError, ConnectionError):
                await asyncio.sleep(0.1)
            else:
                return


async def _load(base: str, messages: int, connections: int) -> None:
    loop = asyncio.get_running_loop()
    serials = list(range(messages))
    port = int(base.rpartition(":")[2])
    ends = [loop.create_future() for _ in range(connections)]
    for end in ends:
        await loop.create_connection(partial(Load, serials, end), "127.0.0.1", port)
    await asyncio.gather(*ends)


async def _cheapest(base: str, options: argparse.Namespace, statuses: int) -> Result:
    """The run that cost least: whatever else runs on the machine can only add to the cost."""
    results = [await _run(base, options, statuses) for _ in range(options.runs)]
    return min(results, key=lambda result: result.cpu_s)


async def _run(base: str, options: argparse.Namespace, statuses: int) -> Result:
    """Load the server, then wait for the statuses."""
    Receiver.expect(statuses)
    cpu = (await asyncio.to_thread(_call, base, "/_sim/stats"))["cpu_seconds"]
    start = time.perf_counter()
    async with asyncio.timeout(_TIMEOUT_S):
        await _load(base, options.messages, options.connections)
        replied = time.perf_counter() - start
        await Receiver.complete.wait()
    settled = time.perf_counter() - start
    cpu = (await asyncio.to_thread(_call, base, "/_sim/stats"))["cpu_seconds"] - cpu
    return Result(options.messages, replied, settled, cpu)


def _scenario(port: int, options: argparse.Namespace) -> dict[str, Any]:
    """Three statuses per message within a second, no limit."""
    webhooks = {
        "url": f"http://127.0.0.1:{port}/webhooks/whatsapp",
        "delay_s": {"sent": 0.2, "delivered": 0.3, "read": 0.5},
        "read_share": 1,
        "batch": options.batch,
    }
    return {"latency": {"median_ms": options.latency_ms}, "webhooks": webhooks}


async def main(options: argparse.Namespace) -> None:
    """Both runs, and what the simulator costs beside the empty app."""
    async with _serving("--app-dir", "bench", "simulator:empty") as base:
        baseline = await _cheapest(base, options, 0)
    receiver = await asyncio.get_running_loop().create_server(Receiver, "127.0.0.1", 0)
    async with receiver, _serving("--factory", "services.simulator.app:create_app") as base:
        port = receiver.sockets[0].getsockname()[1]
        await asyncio.to_thread(_call, base, "/_sim/scenario", _scenario(port, options))
        simulator = await _cheapest(base, options, 3 * options.messages)
        stats = await asyncio.to_thread(_call, base, "/_sim/stats")
    baseline.show("empty app")
    simulator.show("simulator")
    simulator.judge()
    print(f"CPU ratio {simulator.cpu_per_thousand / baseline.cpu_per_thousand:.1f}")
    print(f"webhooks of all runs: {stats['webhooks']}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--latency-ms", type=float, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    uvloop.run(main(_options()))
