"""What `headrace doctor` looks at, each with the cure of what it finds."""

import resource
import time
from dataclasses import dataclass
from typing import Any

import asyncpg
import httpx
from alembic.script import ScriptDirectory
from pydantic import Field
from redis.exceptions import RedisError

from shared.db.migrations import alembic_config
from shared.redis import create_redis
from shared.settings import DatabaseSettings, Secret

AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, RedisError, httpx.HTTPError)
SECONDS = 5.0
# Leases and schedules bear more; a clock that is off by this is not kept by anything.
CLOCK_SECONDS = 2.0
OLDEST_POSTGRES, OLDEST_REDIS = 15, 7
# Database, Redis, callers and logs, beside the messages on the wire.
OTHER_FILES = 256


class DoctorSettings(DatabaseSettings):
    """Those of a sender, since the doctor looks at what a sender would meet."""

    redis_url: Secret = Field(validation_alias="REDIS_URL")
    graph_url: str = "https://graph.facebook.com"
    graph_version: str = "v25.0"
    access_token: Secret
    concurrency: int = 512


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is well, or that has a cure."""

    part: str
    found: str
    cure: str | None = None


def away(part: str, error: Exception) -> Finding:
    return Finding(part, f"does not answer ({type(error).__name__})", "start it, or mend its URL")


def database_findings(told: dict[str, Any], newest: str | None) -> list[Finding]:
    """From its settings to what is wrong with them."""
    version = int(told["server_version_num"]) // 10_000
    off = [name for name, value in told.items() if value == "off"]
    return [
        Finding("postgres", f"version {version}", _upgrade(version, OLDEST_POSTGRES)),
        Finding(
            "postgres durability",
            f"off: {', '.join(off)}" if off else "on",
            "set it to on: a crash loses what was sent, and it is sent again" if off else None,
        ),
        Finding(
            "migrations",
            f"schema {told['schema'] or 'missing'}, newest {newest}",
            None if told["schema"] == newest else "run `headrace migrate` of the newest version",
        ),
    ]


def redis_findings(told: dict[str, Any]) -> list[Finding]:
    version, policy = int(str(told["redis_version"]).partition(".")[0]), told["maxmemory_policy"]
    return [
        Finding("redis", f"version {told['redis_version']}", _upgrade(version, OLDEST_REDIS)),
        Finding(
            "redis eviction",
            policy,
            None if policy == "noeviction" else "set maxmemory-policy noeviction",
        ),
    ]


def clock(part: str, theirs: float, asked: float, answered: float) -> Finding:
    """The time of a question's way there and back is nobody's fault."""
    off = max(asked - theirs, theirs - answered, 0.0)
    cure = "let NTP keep both clocks" if off > CLOCK_SECONDS else None
    return Finding(f"{part} clock", f"{off:.1f} s from this machine's", cure)


def files(concurrency: int) -> Finding:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = concurrency + OTHER_FILES
    enough = limit == resource.RLIM_INFINITY or limit >= needed
    shown = "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
    return Finding("file limit", shown, None if enough else f"ulimit -n {needed}, per number")


async def look_at_database(url: str) -> list[Finding]:
    connection = await asyncpg.connect(url, timeout=SECONDS, statement_cache_size=0)
    try:
        asked = time.time()
        now = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
        answered = time.time()
        return [
            *database_findings(await _database(connection), _newest(url)),
            clock("postgres", now, asked, answered),
        ]
    finally:
        await connection.close()


async def look_at_redis(url: str) -> list[Finding]:
    async with create_redis(url) as redis:
        asked = time.time()
        seconds, micros = await redis.time()
        answered = time.time()
        told = await redis.info("server", "memory")
        return [*redis_findings(told), clock("redis", seconds + micros / 1e6, asked, answered)]


async def numbers(url: str) -> list[tuple[str, str | None]]:
    """Ids of the registered numbers, and the names of their tokens."""
    connection = await asyncpg.connect(url, timeout=SECONDS, statement_cache_size=0)
    try:
        rows = await connection.fetch("SELECT phone_number_id, token_name FROM numbers ORDER BY 1")
        return [(row[0], row[1]) for row in rows]
    finally:
        await connection.close()


async def look_at_number(base: str, phone_number_id: str, token: str) -> Finding:
    """Whether Meta shows the number to whoever has this token."""
    part = f"number {phone_number_id}"
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(timeout=SECONDS, headers=headers) as client:
        answer = await client.get(f"{base}/{phone_number_id}")
    if answer.is_success:
        return Finding(part, "Meta shows it to this token")
    return Finding(part, f"Meta refuses it: {_code(answer)}", _number_cure(answer))


def _upgrade(version: int, oldest: int) -> str | None:
    return None if version >= oldest else f"use version {oldest} or newer"


async def _database(connection: "asyncpg.Connection[asyncpg.Record]") -> dict[str, Any]:
    names = ("server_version_num", "fsync", "full_page_writes", "synchronous_commit")
    told = {name: await connection.fetchval(f"SHOW {name}") for name in names}
    has_schema = await connection.fetchval("SELECT to_regclass('alembic_version') IS NOT NULL")
    query = "SELECT version_num FROM alembic_version"
    return told | {"schema": await connection.fetchval(query) if has_schema else None}


def _newest(url: str) -> str | None:
    return ScriptDirectory.from_config(alembic_config(url)).get_current_head()


def _code(answer: httpx.Response) -> str:
    try:
        return f"{answer.status_code}, code {answer.json()['error']['code']}"
    except (ValueError, LookupError, TypeError):
        return str(answer.status_code)


def _number_cure(answer: httpx.Response) -> str:
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        return "make a new permanent token of a system user, with whatsapp_business_messaging"
    return "check the number's id, and that the token's system user has its account as an asset"
