"""The door to the internet: verify, persist, answer; a raw ASGI callable before the web framework.

Routing and dependency injection would cost four times the work itself.
"""

import hmac
from asyncio import timeout
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from services.ingest.group import StoredWebhook
from services.ingest.metrics import WEBHOOKS
from services.ingest.persist import GroupCommit, NotStoredError
from shared.whatsapp.signature import verify

PATH = "/webhooks/whatsapp"
# Meta sends up to 3 MB.
LARGEST_BODY = 4 * 2**20
# So much more is read and dropped: a connection that is closed over unread bytes is reset, and the
# client never sees why.
_DROPPED = 12 * 2**20
_BODY_SECONDS = 10.0
_SIGNATURE = b"x-hub-signature-256"
# Meta retries by its own clock; this is for whatever stands between.
_RETRY_AFTER = (b"retry-after", b"5")


class TooLargeError(Exception):
    """The body is over the limit."""


class ClientGoneError(Exception):
    """The client closed the connection, or stalled, within the body."""


class WebhookDoor:
    """Takes webhook POSTs; everything else goes to the app."""

    def __init__(self, app: ASGIApp, secrets: Sequence[str], inbox: GroupCommit) -> None:
        self._app = app
        self._secrets = secrets
        self._inbox = inbox

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] == PATH:
            await self._post(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await _read_body(receive)
            result = await self._take(scope, body)
        except TooLargeError:
            result = "too_large"
        except ClientGoneError:
            WEBHOOKS.labels("gone").inc()
            return
        WEBHOOKS.labels(result).inc()
        await _answer(send, result)

    async def _take(self, scope: Scope, body: bytes) -> str:
        signature = _header(scope, _SIGNATURE)
        if not verify(self._secrets, body, signature):
            return "unsigned"
        try:
            await self._inbox.store(StoredWebhook(datetime.now(UTC), signature, body))
        except NotStoredError:
            return "not_stored"
        return "stored"


_ANSWERS = {"stored": 200, "unsigned": 401, "too_large": 413, "not_stored": 503}


async def _answer(send: Send, result: str) -> None:
    status = _ANSWERS[result]
    headers = [(b"content-length", b"0")]
    if status == 503:
        headers.append(_RETRY_AFTER)
    if status == 413:
        # There may be still more of it.
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


async def _read_body(receive: Receive) -> bytes:
    try:
        async with timeout(_BODY_SECONDS):
            return await _read_chunks(receive)
    except TimeoutError:
        raise ClientGoneError from None


async def _read_chunks(receive: Receive) -> bytes:
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > LARGEST_BODY:
            chunks.clear()
        else:
            chunks.append(chunk)
        more = message.get("more_body", False) and size <= LARGEST_BODY + _DROPPED
    if size > LARGEST_BODY:
        raise TooLargeError
    return b"".join(chunks)


def handshake_router(verify_token: str) -> APIRouter:
    """Meta's handshake: it is asked once, when the webhook is set up."""
    router = APIRouter()

    @router.get(PATH)
    async def handshake(
        mode: Annotated[str, Query(alias="hub.mode")] = "",
        token: Annotated[str, Query(alias="hub.verify_token")] = "",
        challenge: Annotated[str, Query(alias="hub.challenge")] = "",
    ) -> Response:
        known = hmac.compare_digest(token.encode("utf-8", "replace"), verify_token.encode())
        if mode != "subscribe" or not known:
            return Response(status_code=403)
        return Response(
            challenge, media_type="text/plain", headers={"X-Content-Type-Options": "nosniff"}
        )

    return router
