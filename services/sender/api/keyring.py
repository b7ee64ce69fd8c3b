"""API keys: made, listed and revoked by people. A key itself is shown once."""

import secrets
from typing import Annotated, Any, Final

import structlog
from fastapi import APIRouter, Path
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, field_validator
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.api.answers import Key, MadeKey, Page, answers
from services.sender.api.connection import ConnectionDep
from services.sender.api.idempotency import Answer, OnceDep
from services.sender.api.keys import ADMIN_NAME, ALONE, Admin, Scope, digest_of
from services.sender.api.paging import Cursor, Limit, after, page
from shared.web import Problem

log = structlog.get_logger()

router = APIRouter(prefix="/v1/keys", tags=["API keys"])

#: So that a scanner for leaked secrets knows one, and its finder where it belongs.
PREFIX: Final = "headrace_"

_COLUMNS = "id, name, scopes, created_at, last_used_at, revoked_at"

# Events name a key, so a name means one valid key at a time.
_CREATE = text(f"""
INSERT INTO api_keys (name, digest, scopes)
SELECT :name, :digest, :scopes
WHERE NOT EXISTS (SELECT FROM api_keys WHERE name = :name AND revoked_at IS NULL)
RETURNING {_COLUMNS}
""")  # built from constants

_LIST = text(f"""
SELECT {_COLUMNS} FROM api_keys WHERE id > :after ORDER BY id LIMIT :limit
""")  # built from constants

_REVOKE = text(f"""
UPDATE api_keys SET revoked_at = now() WHERE id = :id AND revoked_at IS NULL RETURNING {_COLUMNS}
""")  # built from constants

_EXISTS = text("SELECT EXISTS (SELECT FROM api_keys WHERE id = :id)")


class NewKey(BaseModel):
    """A key for one system or person; the event log shows its name."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}$")
    scopes: list[Scope] = Field(min_length=1, max_length=3, description="Each includes the lower")

    @field_validator("name")
    @classmethod
    def _free(cls, value: str) -> str:
        if value == ADMIN_NAME:
            raise ValueError("this is the name of the key of HEADRACE_ADMIN_KEY")
        return value


@router.post("", **answers(MadeKey, 201))
async def create_key(
    body: NewKey, connection: ConnectionDep, caller: Admin, once: OnceDep
) -> JSONResponse:
    """Make a key: `key` is in this answer alone. A repeat with its Idempotency-Key has null."""
    if not await once.begin(connection):
        return once.again()
    key = PREFIX + secrets.token_urlsafe(32)
    made = await _create(connection, body, key)
    await once.keep(connection, Answer(201, made | {"key": None}))
    log.info("key_made", name=body.name, scopes=made["scopes"], actor=caller.actor)
    return JSONResponse(made | {"key": key}, 201, {"Cache-Control": "no-store"})


@router.get("", **answers(Page[Key]))
async def list_keys(
    connection: ConnectionDep, _: Admin, limit: Limit = 100, cursor: Cursor = None
) -> dict[str, Any]:
    """The oldest first; revoked ones too. `last_used_at` may be a minute late."""
    values = {"after": after(cursor) or 0, "limit": limit}
    found = [dict(row) for row in (await connection.execute(_LIST, values)).mappings()]
    return page(found, found[-1]["id"] if len(found) == limit else None)


@router.post("/{key_id}/revoke", **answers(Key))
async def revoke_key(
    key_id: Annotated[int, Path(ge=1, lt=1 << 63)], connection: ConnectionDep, caller: Admin
) -> dict[str, Any]:
    """End a key at once. That of `HEADRACE_ADMIN_KEY` comes back when a sender starts with it."""
    if key_id == caller.key_id:
        raise Problem(409, "this request came with that key: revoke it with another one")
    row = (await connection.execute(_REVOKE, {"id": key_id})).mappings().first()
    if row is None:
        if await connection.scalar(_EXISTS, {"id": key_id}):
            raise Problem(409, "the key is revoked already")
        raise Problem(404, "there is no key with this id")
    log.info("key_revoked", name=row["name"], actor=caller.actor)
    return dict(row)


async def _create(connection: AsyncConnection, new: NewKey, key: str) -> dict[str, Any]:
    await connection.execute(ALONE)
    values = {"name": new.name, "digest": digest_of(key), "scopes": sorted(set(new.scopes))}
    row = (await connection.execute(_CREATE, values)).mappings().first()
    if row is None:
        raise Problem(409, f"there is a key {new.name!r}: revoke it first, or take another name")
    made: dict[str, Any] = jsonable_encoder(dict(row))
    return made
