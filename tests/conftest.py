"""Real servers for every test that asks: started once per xdist worker, emptied between tests."""

import asyncio
import itertools
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from pathlib import Path

import asyncpg
import pytest
from hypothesis import HealthCheck, settings
from redis.asyncio import Redis
from running import Processes
from sqlalchemy.ext.asyncio import AsyncEngine

from services.cli.embedded import EmbeddedServers
from services.cli.processes import ServiceProcess
from shared.db.engine import create_engine
from shared.db.migrations import upgrade
from shared.db.tables import metadata

# A property is about its cases, not about the speed of a busy machine.
settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headrace")

TEMPLATE = "migrated"
NewDatabase = Callable[[], Awaitable[str]]
# What a migration wrote and no test may lose.
KEPT = {"installation"}
TABLES = [name for name in metadata.tables if name not in KEPT]
FILLED = " UNION ALL ".join(f"SELECT '{name}' WHERE EXISTS (TABLE {name})" for name in TABLES)
PROCESSES = pytest.StashKey[list[ServiceProcess]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """What the long storm is made of: make soak ARGS="-k storm --seed 7"."""
    parser.addoption("--seed", type=int, default=1)
    parser.addoption("--recipients", type=int, default=60_000)
    parser.addoption("--rate", type=int, default=240)


def pytest_configure() -> None:
    """A setting of the developer's shell must not reach a test: it might name a real server."""
    for name in list(os.environ):
        if name.startswith("HEADRACE_") or name in {"DATABASE_URL", "REDIS_URL"}:
            del os.environ[name]


@pytest.fixture(scope="session")
def servers() -> Generator[EmbeddedServers]:
    """Postgres and Valkey, fast and forgetful. What a test must not lose in a crash: `durable`."""
    with EmbeddedServers() as running:
        yield running


@pytest.fixture(scope="module")
def durable_servers() -> Generator[EmbeddedServers]:
    """Servers of the module's own that may be killed and lose nothing that was confirmed."""
    with EmbeddedServers(durable=True) as running:
        yield running


@pytest.fixture(scope="session")
async def new_database(servers: EmbeddedServers) -> NewDatabase:
    """A function that makes one more migrated database, for tests that need two or break one."""
    await create_database(servers, TEMPLATE)
    await asyncio.to_thread(upgrade, servers.database_url(TEMPLATE))
    numbers = itertools.count(1)

    async def make() -> str:
        name = f"test_{next(numbers)}"
        await create_database(servers, name, TEMPLATE)
        return servers.database_url(name)

    return make


@pytest.fixture(scope="session")
async def _database_url(new_database: NewDatabase) -> str:
    return await new_database()


@pytest.fixture(scope="session")
async def _cleaner(_database_url: str) -> AsyncGenerator[asyncpg.Connection]:
    connection = await asyncpg.connect(_database_url)
    yield connection
    await connection.close()


@pytest.fixture
async def database_url(_database_url: str, _cleaner: asyncpg.Connection) -> str:
    """The worker's migrated database, emptied before the test (what a failed one left can be seen).

    Ids go on counting, so that no test comes to rely on them.
    """
    await empty(_cleaner)
    return _database_url


@pytest.fixture(scope="session")
async def _engine(_database_url: str) -> AsyncGenerator[AsyncEngine]:
    engine = create_engine(_database_url)
    yield engine
    await engine.dispose()


@pytest.fixture
def engine(_engine: AsyncEngine, database_url: str) -> AsyncEngine:
    """A pool on the emptied database; the event loop, and so the pool, lives for the session."""
    assert database_url
    return _engine


@pytest.fixture(scope="session")
async def _redis(servers: EmbeddedServers) -> AsyncGenerator[Redis]:
    async with Redis.from_url(servers.redis_url) as client:
        yield client


@pytest.fixture
async def redis_url(servers: EmbeddedServers, _redis: Redis) -> str:
    """The worker's own Valkey, emptied before the test."""
    await _redis.flushall()
    await _redis.script_flush()
    return servers.redis_url


@pytest.fixture
def redis(_redis: Redis, redis_url: str) -> Redis:
    assert redis_url
    return _redis


@pytest.fixture
def free_port() -> Callable[[], int]:
    """A function that finds a port nobody listens on now."""

    def find() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    return find


@pytest.fixture
def processes(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[Processes]:
    """Services as real processes; their logs are shown when the test fails."""
    started = request.node.stash.setdefault(PROCESSES, [])
    yield Processes(tmp_path, started)
    for process in reversed(started):
        process.stop(seconds=10)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for process in item.stash.get(PROCESSES, []):
            report.sections.append((f"log of {process.name}", process.last_lines(50)))
    return report


async def create_database(servers: EmbeddedServers, name: str, template: str = "template1") -> None:
    connection = await asyncpg.connect(servers.database_url())
    await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
    await connection.close()


async def empty(connection: asyncpg.Connection) -> None:
    """Truncate only tables that have rows: most tests touch a few of them."""
    filled = [row[0] for row in await connection.fetch(FILLED)]
    if filled:
        await connection.execute(f"TRUNCATE {', '.join(filled)}")
