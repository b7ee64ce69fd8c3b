"""`headrace migrate`: a whole schema, or one line that says why not."""

import asyncio
from collections.abc import Callable

import asyncpg
import pytest

from services.cli.app import main
from services.cli.embedded import EmbeddedServers


@pytest.fixture
def migrate(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    def run(url: str) -> int:
        monkeypatch.setenv("DATABASE_URL", url)
        monkeypatch.setattr("sys.argv", ["headrace", "migrate"])
        return main()

    return run


async def make(servers: EmbeddedServers) -> str:
    connection = await asyncpg.connect(servers.database_url())
    await connection.execute("CREATE DATABASE to_migrate TEMPLATE template0")
    await connection.close()
    return servers.database_url("to_migrate")


async def installations(url: str) -> int:
    connection = await asyncpg.connect(url)
    found = await connection.fetchval("SELECT count(*) FROM installation")
    await connection.close()
    return int(found)


def test_an_empty_database_gets_the_schema_once(
    servers: EmbeddedServers, migrate: Callable[[str], int]
) -> None:
    url = asyncio.run(make(servers))
    assert [migrate(url), migrate(url)] == [0, 0]
    assert asyncio.run(installations(url)) == 1


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://postgres@127.0.0.1:1/none",
        "postgresql://postgres@/postgres?host=/nowhere&port=5432",
        "no url at all",
    ],
)
def test_what_is_in_the_way_is_said_in_one_line(
    url: str, migrate: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert migrate(url) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("headrace: ")
