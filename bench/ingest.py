"""How many webhooks a second ingest takes, stores and applies, beside two simpler services.

Run: .venv/bin/python bench/ingest.py [--messages 5000]

`floor` checks the signature and answers, `insert` stores each webhook by an INSERT of its own,
`ingest` is ours: in groups, and applied. All three are raw ASGI under uvicorn with the same load
(three signed statuses per message, 64 connections, each sends the next webhook after the answer)
on a Postgres that syncs. CPU is that of the service process; the ratio is to `floor`.
"""

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
from typing_extensions import override

from services.cli.embedded import EmbeddedServers
from services.cli.processes import ServiceProcess, start_service
from services.ingest.parse import webhook_of
from services.ingest.receive import PATH
from shared.db.migrations import upgrade
from shared.domain.tokens import Token
from shared.whatsapp.signature import sign, verify

_SECRET = "bench"  # noqa: S105  # signs nothing but the load
_CONNECTIONS = 64
_TIMEOUT_S = 60
_STATUSES = ("sent", "delivered", "read")


@dataclass(frozen=True, slots=True)
class Run:
    """One service under the whole load. `settled_s` ends when all of it is applied."""

    name: str
    webhooks: int
    answered_s: float
    settled_s: float
    cpu_s: float

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.webhooks * 1e6

    def show(self, floor: "Run") -> None:
        """One line of the table."""
        print(
            f"{self.name:<8}{self.webhooks / self.answered_s:>12,.0f}"
            f"{self.webhooks / self.settled_s:>12,.0f}{self.cpu_us:>14,.0f}"
            f"{self.cpu_us / floor.cpu_us:>8.1f}"
        )


def create_floor() -> Any:
    """Checks the signature and answers."""

    async def store(_: bytes) -> None:
        pass

    return _baseline(store)


def create_insert() -> Any:
    """Stores each webhook by itself, as most services do."""
    pool = asyncpg.create_pool(os.environ["DATABASE_URL"], max_size=10)

    async def store(body: bytes) -> None:
        await pool.execute("INSERT INTO raw_webhooks (body) VALUES ($1)", body)

    return _baseline(store, pool)


def _baseline(store: Any, pool: Any = None) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send, pool)
            return
        body = (await receive())["body"] if scope["method"] == "POST" else b""
        given = dict(scope["headers"]).get(b"x-hub-signature-256", b"").decode()
        if verify([_SECRET], body, given):
            await store(body)
        headers = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    return app


async def _live(receive: Any, send: Any, pool: Any) -> None:
    await receive()
    if pool:
        await pool
    await send({"type": "lifespan.startup.complete"})
    await receive()
    if pool:
        await pool.close()
    await send({"type": "lifespan.shutdown.complete"})


class Connection(asyncio.Protocol):
    """Sends the next request after each answer; the heads of the answers are all alike."""

    def __init__(self, requests: Iterator[bytes], done: asyncio.Future[None]) -> None:
        self._requests, self._done = requests, done
        self._transport: Any = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._next()

    @override
    def data_received(self, data: bytes) -> None:
        if not data.startswith(b"HTTP/1.1 200"):
            self._done.set_exception(RuntimeError(data[:40].decode()))
        elif data.endswith(b"\r\n\r\n"):
            self._next()

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is not None:
            self._transport.write(request)
        elif not self._done.done():
            self._done.set_result(None)


async def send_all(port: int, requests: Sequence[bytes]) -> float:
    """Seconds until every request has its answer."""
    loop, source = asyncio.get_running_loop(), iter(requests)
    started = time.perf_counter()
    ends = [loop.create_future() for _ in range(_CONNECTIONS)]
    opened = [
        await loop.create_connection(partial(Connection, source, end), "127.0.0.1", port)
        for end in ends
    ]
    async with asyncio.timeout(_TIMEOUT_S):
        await asyncio.gather(*ends)
    seconds = time.perf_counter() - started
    for transport, _ in opened:
        transport.close()
    return seconds


def make_requests(installation: str, messages: int) -> list[bytes]:
    """Three statuses per message, each a webhook; those of one message are far apart."""
    requests = []
    for status in _STATUSES:
        numbers = list(range(1, messages + 1))
        random.Random(status).shuffle(numbers)
        requests += [_request(Token(installation, number, 1), status) for number in numbers]
    return requests


def _request(token: Token, status: str) -> bytes:
    raw = (
        f'{{"id":"wamid.HBgLMTIwMjU1NTAxNDIVAgARGBJB{token.message_id:020d}","status":"{status}",'
        f'"timestamp":"{int(time.time())}","recipient_id":"12025550142",'
        f'"biz_opaque_callback_data":"{token.encode()}","pricing":{{"billable":true,'
        '"pricing_model":"PMP","type":"regular","category":"marketing"}}'
    )
    body = webhook_of(raw.encode(), "840000000000002")
    head = (
        f"POST {PATH} HTTP/1.1\r\nhost: bench\r\nx-hub-signature-256: {sign(_SECRET, body)}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@contextmanager
def service(name: str, app: str, url: str, folder: Path) -> Iterator[ServiceProcess]:
    env = {
        "DATABASE_URL": url,
        "HEADRACE_APP_SECRETS": _SECRET,
        "HEADRACE_VERIFY_TOKEN": _SECRET,
    }
    process = start_service(name, app, env, folder / f"{name}.log")
    try:
        process.wait_ready()
        yield process
    finally:
        process.stop(20)


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[asyncpg.Connection, None]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def prepare(url: str, messages: int) -> list[bytes]:
    """Rows as the sender leaves them after Meta has accepted them."""
    async with connected(url) as connection:
        await connection.execute("CREATE TABLE raw_webhooks (id bigserial, body bytea)")
        await connection.execute(
            "INSERT INTO messages (id, campaign_id, status, accepted_at)"
            " SELECT id, 1, 'accepted', now() FROM generate_series(1, $1::bigint) AS id",
            messages,
        )
        await connection.execute("VACUUM ANALYZE messages")
        return make_requests(
            str(await connection.fetchval("SELECT id FROM installation")), messages
        )


async def settle(url: str, messages: int) -> None:
    """Wait until every message is read with all its times."""
    statement = "SELECT count(*) FROM messages WHERE status = 'read' AND sent_at IS NOT NULL"
    async with connected(url) as connection, asyncio.timeout(_TIMEOUT_S):
        while await connection.fetchval(statement) < messages:  # noqa: ASYNC110  # over there
            await asyncio.sleep(0.05)


async def measure(
    process: ServiceProcess, requests: Sequence[bytes], settled: tuple[str, int] | None = None
) -> Run:
    started, cpu = time.perf_counter(), cpu_seconds(process.pid)
    answered_s = await send_all(process.port, requests)
    if settled:
        await settle(*settled)
    settled_s = time.perf_counter() - started if settled else answered_s
    return Run(process.name, len(requests), answered_s, settled_s, cpu_seconds(process.pid) - cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=5000)
    messages = parser.parse_args().messages
    with EmbeddedServers(durable=True) as servers, tempfile.TemporaryDirectory() as folder:
        url = servers.database_url()
        upgrade(url)
        requests = asyncio.run(prepare(url, messages))
        runs = []
        for name in ("floor", "insert"):
            with service(name, f"bench.ingest:create_{name}", url, Path(folder)) as process:
                runs.append(asyncio.run(measure(process, requests)))
        with service("ingest", "services.ingest.app:create_app", url, Path(folder)) as process:
            runs.append(asyncio.run(measure(process, requests, (url, messages))))
    print(f"{'':<8}{'answered/s':>12}{'applied/s':>12}{'CPU us each':>14}{'ratio':>8}")
    for run in runs:
        run.show(runs[0])


if __name__ == "__main__":
    main()
