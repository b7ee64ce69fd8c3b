"""What `headrace doctor` looks at, each with the cure of what it finds."""

import resource
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import asyncpg
import httpx
from alembic.script import ScriptDirectory
from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode
from redis.exceptions import AuthenticationError, RedisError

from services.cli.unreachable import why
from shared.db.engine import POOLED
from shared.db.migrations import alembic_config
from shared.domain.phones import prefixes
from shared.redis import create_redis
from shared.settings import DatabaseSettings, Secret

AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, RedisError, httpx.HTTPError)
SECONDS = 5.0
# Leases and schedules bear more; a clock that is off by this is not kept by anything.
CLOCK_SECONDS = 2.0
OLDEST_POSTGRES, OLDEST_REDIS = 15, 7
# Database, Redis, callers and logs, beside the messages on the wire.
OTHER_FILES = 256
META = "https://graph.facebook.com"
# Far longer than Meta takes, and than counts take to be folded.
WEBHOOK_DELAY = timedelta(minutes=10)

_NUMBERS = """
    SELECT phone_number_id, waba_id, rate, token_name, heard.received_at, (
        SELECT max(minute) FROM campaigns JOIN campaign_counters ON campaign_id = campaigns.id
        WHERE campaigns.phone_number_id = numbers.phone_number_id
          AND status = 'accepted' AND entered > 0
    ), paused_reason IS NOT DISTINCT FROM 'operator'
    FROM numbers LEFT JOIN webhook_heartbeats AS heard USING (phone_number_id) ORDER BY 1
"""


class DoctorSettings(DatabaseSettings):
    """Those of a sender, since the doctor looks at what a sender would meet."""

    redis_url: Secret = Field(validation_alias="REDIS_URL")
    graph_url: str = META
    graph_version: str = "v25.0"
    access_token: Secret
    concurrency: int = 512
    allowed_recipients: Annotated[tuple[str, ...] | None, NoDecode, BeforeValidator(prefixes)] = (
        Field(None, repr=False, validate_default=False)
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is well, or that has a cure. With a `warning` it can be sent all the same."""

    part: str
    found: str
    cure: str | None = None
    warning: bool = False

    @property
    def level(self) -> Literal["well", "warn", "sick"]:
        if self.cure is None:
            return "well"
        return "warn" if self.warning else "sick"


@dataclass(frozen=True, slots=True)
class Number:
    """A registered number, when a webhook of it last came, and when Meta last took a message.

    `put_aside`: an operator has paused it.
    """

    phone_number_id: str
    waba_id: str
    rate: int
    token_name: str | None = None
    heard_at: datetime | None = None
    accepted_at: datetime | None = None
    put_aside: bool = False


def away(part: str, error: Exception) -> Finding:
    if isinstance(error, asyncpg.PostgresError):
        said = next(iter(str(error).splitlines()), type(error).__name__)
        return Finding(part, f"refuses us: {said}", "mend that, or its URL")
    if isinstance(error, AuthenticationError):
        return Finding(part, "refuses us", "mend user and password in its URL")
    return Finding(part, f"does not answer ({why(error)})", "start it, or mend its URL")


def meta(url: str, version: str) -> Finding:
    """Whom a sender asks: who rehearses must not think that somebody gets a message."""
    address = urlsplit(url)
    if url.rstrip("/") == META:
        return Finding("Meta", f"{address.hostname}, {version}")
    place = f"HEADRACE_GRAPH_URL is {address.hostname}:{address.port or address.scheme}"
    cure = f"for real messages, HEADRACE_GRAPH_URL={META}"
    return Finding("Meta", f"{place}, not Meta's own", cure, warning=True)


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


async def look_at_database(url: str, *, pgbouncer: bool) -> list[Finding]:
    connection = await asyncpg.connect(url, timeout=SECONDS, statement_cache_size=0)
    try:
        asked = time.time()
        now = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
        answered = time.time()
        return [
            *database_findings(await _database(connection), _newest(url)),
            clock("postgres", now, asked, answered),
            pooler(kept=await _keeps_settings(url), told=pgbouncer),
        ]
    finally:
        await connection.close()


def pooler(*, kept: bool, told: bool) -> Finding:
    """A session that keeps its settings is nobody else's."""
    found = "none is in the way" if kept else "transactions are pooled"
    return Finding("postgres pooler", found, None if kept or told else POOLED)


async def look_at_redis(url: str) -> list[Finding]:
    async with create_redis(url) as redis:
        asked = time.time()
        seconds, micros = await redis.time()
        answered = time.time()
        told = await redis.info("server", "memory")
        return [*redis_findings(told), clock("redis", seconds + micros / 1e6, asked, answered)]


async def numbers(url: str) -> list[Number]:
    """Those that are registered."""
    connection = await asyncpg.connect(url, timeout=SECONDS, statement_cache_size=0)
    try:
        return [Number(*row) for row in await connection.fetch(_NUMBERS)]
    finally:
        await connection.close()


def webhook_finding(number: Number, now: datetime) -> Finding:
    """Whether webhooks of the number arrive: Meta tells of every message it took."""
    part = f"webhooks {number.phone_number_id}"
    heard, accepted = number.heard_at, number.accepted_at
    shown = f"last one at {heard:%Y-%m-%d %H:%M} UTC" if heard else "none has come"
    if accepted is None:
        return Finding(part, f"{shown}; nothing was sent yet")
    missed = accepted < now - WEBHOOK_DELAY and (heard is None or heard < accepted)
    cure = (
        "in Meta's app dashboard, enter ingest's address and HEADRACE_VERIFY_TOKEN and subscribe"
        " the field messages; then see what ingest's log says"
    )
    told = f"{shown}, none of the messages accepted since" if heard and missed else shown
    return Finding(part, told, cure if missed else None)


def recipients(allowed: tuple[str, ...] | None) -> Finding:
    if allowed is None:
        return Finding("recipients", "everyone: HEADRACE_ALLOWED_RECIPIENTS is not set")
    told = f"only those of HEADRACE_ALLOWED_RECIPIENTS (entries: {len(allowed)})"
    return Finding("recipients", told)


def _upgrade(version: int, oldest: int) -> str | None:
    return None if version >= oldest else f"use version {oldest} or newer"


async def _database(connection: "asyncpg.Connection[asyncpg.Record]") -> dict[str, Any]:
    names = ("server_version_num", "fsync", "full_page_writes", "synchronous_commit")
    told = {name: await connection.fetchval(f"SHOW {name}") for name in names}
    has_schema = await connection.fetchval("SELECT to_regclass('alembic_version') IS NOT NULL")
    query = "SELECT version_num FROM alembic_version"
    return told | {"schema": await connection.fetchval(query) if has_schema else None}


async def _keeps_settings(url: str) -> bool:
    """A transaction pooler refuses a session's settings, or forgets them."""
    name, wanted = "plan_cache_mode", "force_custom_plan"
    options: dict[str, Any] = {"timeout": SECONDS, "statement_cache_size": 0}
    try:
        connection = await asyncpg.connect(url, **options, server_settings={name: wanted})
    except asyncpg.ProtocolViolationError:
        return False
    try:
        return bool(await connection.fetchval(f"SHOW {name}") == wanted)
    finally:
        await connection.close()


def _newest(url: str) -> str | None:
    return ScriptDirectory.from_config(alembic_config(url)).get_current_head()
