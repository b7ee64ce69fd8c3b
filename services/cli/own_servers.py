"""Servers of the user's own in place of the embedded ones, where these cannot run."""

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import asyncpg
from click import ClickException

from services.cli.environment import setting

_TABLES = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"


@dataclass(frozen=True)
class OwnServers:
    """From DATABASE_URL and REDIS_URL. The database must be empty: the demo fills it and leaves.

    In a database that is in use, a real sender would take the demo's campaign for a real one.
    """

    url: str
    redis_url: str

    @classmethod
    def from_environment(cls) -> Self:
        return cls(setting("DATABASE_URL"), setting("REDIS_URL"))

    def database_url(self) -> str:
        return self.url

    def __enter__(self) -> Self:
        if asyncio.run(_tables(self.url)):
            raise ClickException("DATABASE_URL: the demo needs an empty database of its own")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """They were not ours to start, so they run on."""


async def _tables(url: str) -> int:
    connection = await asyncpg.connect(url, statement_cache_size=0)  # it may be a pooler
    try:
        return int(await connection.fetchval(_TABLES))
    finally:
        await connection.close()
