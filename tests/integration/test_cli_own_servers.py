"""Servers of the user's own: taken when the database is empty, left alone when it is not."""

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
import pytest
from click import ClickException

from services.cli.embedded import EmbeddedServers
from services.cli.environment import forget_settings
from services.cli.own_servers import OwnServers


async def test_a_database_in_use_is_refused(new_database: Callable[[], Awaitable[str]]) -> None:
    own = OwnServers(await new_database(), "redis://localhost")
    with pytest.raises(ClickException, match="an empty database of its own"):
        await asyncio.to_thread(own.__enter__)


async def test_an_empty_database_is_taken(servers: EmbeddedServers) -> None:
    connection = await asyncpg.connect(servers.database_url())
    await connection.execute("CREATE DATABASE empty TEMPLATE template0")
    await connection.close()
    own = OwnServers(servers.database_url("empty"), servers.redis_url)
    await asyncio.to_thread(own.__enter__)
    assert own.database_url() == servers.database_url("empty")


def test_both_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://somewhere/else")
    with pytest.raises(ClickException, match="REDIS_URL is missing"):
        OwnServers.from_environment()


def test_a_stack_forgets_the_shells_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("DATABASE_URL", "REDIS_URL_FILE", "HEADRACE_ACCESS_TOKEN")
    for name in names:
        monkeypatch.setenv(name, "real")
    forget_settings()
    monkeypatch.setenv("HEADRACE_URL", "http://127.0.0.1")
    with pytest.raises(ClickException, match="DATABASE_URL is missing"):
        OwnServers.from_environment()
