"""Makes a repeated POST answer what the first one did, by a row in the first one's transaction."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Header, Request
from fastapi.responses import JSONResponse
from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.api.keys import Operator
from shared.web import Problem

# Held until the transaction ends, so whoever gets it sees what the one before has committed.
# Trying instead of waiting: the first may be an upload that takes minutes.
_LOCK = text("""
SELECT pg_try_advisory_xact_lock(hashtextextended('headrace key ' || :api_key || ' ' || :key, 0))
""")

_STORED = text("""
SELECT request_digest, status, body FROM idempotency_keys
WHERE api_key_id = :api_key AND key = :key AND created_at > now() - interval '24 hours'
""")

_STORE = text("""
INSERT INTO idempotency_keys AS k (api_key_id, key, request_digest, status, body)
VALUES (:api_key, :key, :digest, :status, :body)
ON CONFLICT (api_key_id, key) DO UPDATE SET request_digest = excluded.request_digest,
    status = excluded.status, body = excluded.body, created_at = now()
""").bindparams(bindparam("body", type_=JSONB))

_FORGET = text("DELETE FROM idempotency_keys WHERE api_key_id = :api_key AND key = :key")

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="The same key and body within 24 hours get the first answer again",
    ),
]


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer: the only kind that is kept."""

    status: int
    body: dict[str, Any]


class Once:
    """One request with an idempotency key, or without one: then nothing is kept."""

    def __init__(self, api_key: int, key: str | None, place: str) -> None:
        self._names = {"api_key": str(api_key), "key": key}
        self._api_key = api_key
        self._key = key
        self._digest = hashlib.sha256(place.encode())
        self._stored: tuple[bytes, Answer] | None = None

    async def begin(self, connection: AsyncConnection) -> bool:
        """Join the transaction; True when the effect is not there yet. 409 while it is made."""
        if self._key is None:
            return True
        if not await connection.scalar(_LOCK, self._names):
            detail = "the first request with this Idempotency-Key is still running"
            raise Problem(409, detail, headers={"Retry-After": "1"})
        values = {"api_key": self._api_key, "key": self._key}
        found = (await connection.execute(_STORED, values)).first()
        if found is not None:
            self._stored = (found.request_digest, Answer(found.status, found.body))
        return found is None

    def read(self, data: bytes) -> None:
        """A part of the request's body, in its order."""
        self._digest.update(data)

    def first(self) -> Answer:
        """The stored answer; 422 when it was given to another body."""
        if self._stored is None or self._stored[0] != self._digest.digest():
            raise Problem(422, "this Idempotency-Key was used with another request")
        return self._stored[1]

    def again(self) -> JSONResponse:
        """Answer as the first time."""
        answer = self.first()
        return JSONResponse(answer.body, answer.status, {"Idempotency-Replayed": "true"})

    async def keep(self, connection: AsyncConnection, answer: Answer) -> JSONResponse:
        """Store the answer in the transaction of its effect."""
        if self._key is not None:
            values = {
                "api_key": self._api_key,
                "key": self._key,
                "digest": self._digest.digest(),
                "status": answer.status,
                "body": answer.body,
            }
            await connection.execute(_STORE, values)
        return JSONResponse(answer.body, answer.status)

    async def forget(self, connection: AsyncConnection) -> None:
        """What was kept has come to nothing: the next request with the key begins anew."""
        if self._key is not None:
            await connection.execute(_FORGET, {"api_key": self._api_key, "key": self._key})

    async def run(
        self, connection: AsyncConnection, effect: Callable[[], Awaitable[Answer]]
    ) -> JSONResponse:
        """The stored answer, or the effect and its answer."""
        if await self.begin(connection):
            return await self.keep(connection, await effect())
        return self.again()


def streamed_once(request: Request, caller: Operator, key: IdempotencyKey = None) -> Once:
    """For a route that reads its body itself."""
    return Once(caller.key_id, key, f"{request.method} {request.url.path}\n")


async def once(request: Request, caller: Operator, key: IdempotencyKey = None) -> Once:
    started = streamed_once(request, caller, key)
    started.read(await request.body())
    return started


OnceDep = Annotated[Once, Depends(once)]
StreamedOnceDep = Annotated[Once, Depends(streamed_once)]
