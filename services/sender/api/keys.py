"""Who may do what: bearer keys, stored as digests, with scopes."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

import structlog
from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.sender.api.process import RuntimeDep
from services.sender.settings import SenderSettings
from shared.db.faults import DatabaseFault
from shared.periodic import describe
from shared.web import Problem

log = structlog.get_logger()


class Scope(StrEnum):
    """Each scope includes those before it."""

    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"


_RANKS = {scope: rank for rank, scope in enumerate(Scope)}

_FIND = text("SELECT id, name, scopes FROM api_keys WHERE digest = :digest AND revoked_at IS NULL")

#: The name of the environment's key; nobody can make another one with it.
ADMIN_NAME: Final = "admin"

#: So that a name means one valid key at a time. Readers are not kept waiting.
ALONE: Final = text("LOCK TABLE api_keys IN SHARE ROW EXCLUSIVE MODE")

# A key of the environment is valid as long as it is set: also if it was revoked in between, and
# not when another one has taken its place.
_ADMIN = text("""
INSERT INTO api_keys (name, digest, scopes) VALUES (:name, :digest, :scopes)
ON CONFLICT (digest) DO UPDATE SET name = excluded.name, scopes = excluded.scopes, revoked_at = NULL
""")
_REPLACED = text("""
UPDATE api_keys SET revoked_at = now()
WHERE name = :name AND digest <> :digest AND revoked_at IS NULL RETURNING id
""")

_STILL_VALID = text("SELECT id FROM api_keys WHERE id = :id AND revoked_at IS NULL")

USED_SECONDS: Final = 60.0

_USED = text("UPDATE api_keys SET last_used_at = now() WHERE id = :id")

_bearer = HTTPBearer(auto_error=False, description="An API key")


@dataclass(frozen=True, slots=True)
class Caller:
    """The key that a request came with."""

    key_id: int
    name: str
    scopes: Sequence[str]

    @property
    def actor(self) -> str:
        """The name that the event log shows."""
        return f"key:{self.name}"

    def may(self, scope: Scope) -> bool:
        held = max((_RANKS[Scope(one)] for one in self.scopes if one in _RANKS), default=-1)
        return held >= _RANKS[scope]


class Uses:
    """Writes down that keys are used: at most once a minute each, beside the request."""

    def __init__(self) -> None:
        self._begun: dict[int, float] = {}
        self._writing: set[asyncio.Task[None]] = set()

    def note(self, engine: AsyncEngine, key_id: int) -> None:
        """Nobody waits for the writing: also a request that is refused has used its key."""
        now = time.monotonic()
        if now - self._begun.get(key_id, -USED_SECONDS) < USED_SECONDS:
            return
        self._begun[key_id] = now
        writing = asyncio.create_task(_write_use(engine, key_id))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)


async def _write_use(engine: AsyncEngine, key_id: int) -> None:
    """That it could not be written down changes nothing."""
    try:
        async with engine.begin() as connection:
            await connection.execute(_USED, {"id": key_id})
    except DatabaseFault as error:
        log.warning("key_use_not_written", **describe(error))


def digest_of(key: str) -> bytes:
    """What is stored of a key. Keys are random and long, so a plain hash is enough."""
    return hashlib.sha256(key.encode()).digest()


async def ensure_admin_key(engine: AsyncEngine, settings: SenderSettings) -> None:
    """Make the key of `HEADRACE_ADMIN_KEY` valid, in the place of the one before.

    Called at the start of a sender.
    """
    values = {
        "name": ADMIN_NAME,
        "digest": digest_of(settings.admin_key.get_secret_value()),
    }
    async with engine.begin() as connection:
        await connection.execute(ALONE)
        await connection.execute(_ADMIN, {**values, "scopes": list(Scope)})
        replaced = (await connection.execute(_REPLACED, values)).scalars().all()
    if replaced:
        log.warning("admin_key_replaced", revoked=list(replaced))


async def caller(
    request: Request,
    runtime: RuntimeDep,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> Caller:
    """Look the key up by its digest: a comparison that says nothing about the key by its time.

    On a connection of its own: an upload must not keep one for this while its body arrives.
    """
    if credentials is None:
        raise _unauthorized("an API key is needed: Authorization: Bearer <key>")
    async with runtime.engine.connect() as connection:
        values = {"digest": digest_of(credentials.credentials)}
        found = (await connection.execute(_FIND, values)).first()
    if found is None:
        raise _unauthorized("the API key is not valid")
    request.app.state.key_uses.note(runtime.engine, found.id)
    return Caller(found.id, found.name, found.scopes)


async def check_still_valid(connection: AsyncConnection, caller: Caller) -> None:
    """For what takes long, before its commit: a key that is revoked ends at once."""
    if (await connection.execute(_STILL_VALID, {"id": caller.key_id})).first() is None:
        raise _unauthorized("the API key was revoked meanwhile")


def require(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    async def allowed(caller: Annotated[Caller, Depends(caller)]) -> Caller:
        if not caller.may(scope):
            raise Problem(403, f"the API key lacks the scope {scope}")
        return caller

    return allowed


Reader = Annotated[Caller, Depends(require(Scope.READ))]
Operator = Annotated[Caller, Depends(require(Scope.OPERATE))]
Admin = Annotated[Caller, Depends(require(Scope.ADMIN))]


def _unauthorized(detail: str) -> Problem:
    return Problem(401, detail, headers={"WWW-Authenticate": "Bearer"})
