"""The hot route, raw ASGI: a send comes in, is judged, and is answered as the scenario says."""

import asyncio
import hmac
from typing import cast

from starlette.types import Receive, Scope
from starlette.types import Send as Respond

from services.simulator import breakage, replies
from services.simulator.behaviour import Ambiguous, Clear, Refused
from services.simulator.dice import Dice, Die
from services.simulator.request import InvalidSendError, Message, read
from services.simulator.scenario import AmbiguousKind
from services.simulator.wheel import Pauses
from services.simulator.world import World

_JSON = b"application/json; charset=UTF-8"
_HTML = b"text/html; charset=utf-8"
_LARGEST_BODY = 1 << 20
# The reply waits for an early status no longer than this.
_EARLY_S = 2.0


class Sends:
    """POST /{version}/{phone_number_id}/messages and …/marketing_messages."""

    def __init__(self, world: World, access_token: str | None) -> None:
        self._world = world
        self._bearer = f"Bearer {access_token}".encode() if access_token else None
        self._pauses = Pauses()
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End every silence, so that the process can stop."""
        self._closing.set()

    async def __call__(self, scope: Scope, receive: Receive, respond: Respond) -> None:
        """Answer one request."""
        _, _, number, edge = scope["path"].split("/")
        try:
            content = await _content(receive)
            self._authorize(scope)
            message = read(number, edge, content)
        except InvalidSendError as invalid:
            self._world.ledger.refuse(invalid.code)
            await answer(respond, *replies.refused(invalid.code, invalid.details))
        else:
            await self._judge(message, receive, respond)

    async def _judge(self, message: Message, receive: Receive, respond: Respond) -> None:
        dice = Dice(self._world.scenario.seed, message.fate)
        verdict = self._world.judge(message)
        if isinstance(verdict, Refused):
            await self._take_time(dice)
            await answer(respond, *replies.refused(verdict.code))
            return
        body = b""
        if isinstance(verdict, Clear) or verdict.rule.accepted:
            body = await self._accept(message, verdict, dice)
        await self._take_time(dice)
        if isinstance(verdict, Clear):
            self._world.ledger.answers["200"] += 1
            await answer(respond, 200, body)
        else:
            await self._blur(verdict, body, receive, respond)

    async def _accept(self, message: Message, verdict: Clear | Ambiguous, dice: Dice) -> bytes:
        wamid, early = self._world.accept(message, verdict, dice)
        if early:
            await self._world.delivery.post_now(early, _EARLY_S)
        return replies.accepted(message.to, wamid, template=message.template)

    async def _take_time(self, dice: Dice) -> None:
        latency = self._world.scenario.latency
        if latency.median_ms:
            ms = dice.around(Die.LATENCY, latency.median_ms, latency.sigma)
            await self._pauses.pause(ms / 1000)

    async def _blur(
        self, verdict: Ambiguous, body: bytes, receive: Receive, respond: Respond
    ) -> None:
        """Give the reply that tells nothing."""
        self._world.ledger.answers[verdict.rule.kind] += 1
        match verdict.rule.kind:
            case AmbiguousKind.HTML_502:
                await answer(respond, 502, replies.HTML_502, _HTML)
            case AmbiguousKind.EMPTY_200:
                await answer(respond, 200, b"")
            case AmbiguousKind.GARBAGE_200:
                await answer(respond, 200, replies.GARBAGE)
            case AmbiguousKind.RESET:
                await breakage.reset(receive, respond)
            case AmbiguousKind.STALL:
                await self._stall(verdict.rule.stall_s, body, receive, respond)

    async def _stall(
        self, seconds: float | None, body: bytes, receive: Receive, respond: Respond
    ) -> None:
        there = await breakage.stall(receive, self._closing, seconds)
        if there and seconds is not None:
            await answer(respond, 200, body)
        else:
            await breakage.reset(receive, respond)

    def _authorize(self, scope: Scope) -> None:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if not given.startswith(b"Bearer "):
            raise InvalidSendError(104, "An access token is required.")
        if self._bearer and not hmac.compare_digest(given, self._bearer):
            raise InvalidSendError(190, "The access token could not be decrypted.")


async def answer(respond: Respond, status: int, body: bytes, content_type: bytes = _JSON) -> None:
    """Send a whole reply."""
    headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
    await respond({"type": "http.response.start", "status": status, "headers": headers})
    await respond({"type": "http.response.body", "body": body})


async def _content(receive: Receive) -> bytes:
    """The request's body, bounded. A client that hangs up has sent nothing."""
    content = b""
    while True:
        event = await receive()
        content += cast("bytes", event.get("body", b""))
        if len(content) > _LARGEST_BODY:
            raise InvalidSendError(100, "The body is too large.")
        if not event.get("more_body"):
            return content
