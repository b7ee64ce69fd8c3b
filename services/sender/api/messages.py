"""Live messages: one call, one message, ahead of campaigns, with its end in the answer."""

from typing import Annotated, Any, Self

from fastapi import APIRouter, Path
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.api.answers import Accepted, LiveMessageNow, NotKnown, answers
from services.sender.api.campaign_shapes import Template
from services.sender.api.connection import ConnectionDep
from services.sender.api.ends import answer, refusal, skipped
from services.sender.api.idempotency import Answer, Once, OnceDep
from services.sender.api.keys import Operator, Reader
from services.sender.api.numbers import PhoneNumberId
from services.sender.api.process import LiveDep, RuntimeDep
from services.sender.audience import listing
from services.sender.campaigns.template import TemplateError, compile_template
from services.sender.pipeline.live import MOST_WAIT_S, End, LiveMessage
from services.sender.pipeline.live_rows import LiveRefused
from shared.domain.phones import Invalid, Phone, normalise
from shared.domain.status import Status
from shared.web import Problem
from shared.whatsapp.live import Kind, lacks

router = APIRouter(prefix="/v1", tags=["live messages"])

_Object = dict[str, Any] | None


class Context(BaseModel):
    """Makes the message a quoted reply."""

    model_config = ConfigDict(extra="forbid")

    message_id: str = Field(min_length=1, max_length=500)


class NewMessage(BaseModel):
    """One message in Meta's words: exactly one content, under the name of its type.

    All but templates is taken by Meta only within 24 hours after the person has written.
    """

    model_config = ConfigDict(extra="forbid")

    to: str = Field(max_length=100, description="With its country code, in any usual form")
    type: Kind | None = Field(None, description="May be left out: the content says it")
    template: Template | None = None
    text: _Object = None
    image: _Object = None
    video: _Object = None
    audio: _Object = None
    document: _Object = None
    sticker: _Object = None
    location: _Object = None
    contacts: list[dict[str, Any]] | None = None
    interactive: _Object = None
    reaction: _Object = None
    context: Context | None = None
    max_wait_ms: int = Field(
        1000, ge=0, le=int(MOST_WAIT_S * 1000), description="Longest wait for a permit"
    )

    @property
    def kind(self) -> Kind:
        (kind,) = [kind for kind in Kind if getattr(self, kind.value) is not None]
        return kind

    @model_validator(mode="after")
    def _one_content(self) -> Self:
        given = [kind for kind in Kind if getattr(self, kind.value) is not None]
        if len(given) != 1 or self.type not in (None, given[0]):
            raise ValueError(f"needs exactly one content, under its type: {', '.join(Kind)}")
        problem = None if given[0] is Kind.TEMPLATE else lacks(given[0], self._content(given[0]))
        if problem is not None:
            raise ValueError(f"{given[0]}: {problem}")
        self._rendered()
        self.phone()
        return self

    def phone(self) -> Phone:
        found = normalise(self.to, None)
        if isinstance(found, Invalid):
            raise ValueError(f"to: {found.reason}")  # noqa: TRY004  # a value, as pydantic hears it
        return found

    def content(self) -> Any:
        return self._rendered() if self.template else self._content(self.kind)

    def _content(self, kind: Kind) -> Any:
        return getattr(self, kind.value)

    def _rendered(self) -> dict[str, Any] | None:
        """The template as Meta takes it. It has no columns: what it says is all there is."""
        if self.template is None:
            return None
        try:
            compiled = compile_template(self.template.model_dump())
        except TemplateError as error:
            raise ValueError(f"template: {error}") from None
        if compiled.columns:
            raise ValueError("template: a live message has its values in place of {{column}}")
        return compiled.render({})


@router.post(
    "/phone-numbers/{phone_number_id}/messages",
    responses={200: {"model": Accepted}, 202: {"model": NotKnown}},
)
async def send_message(
    phone_number_id: PhoneNumberId,
    body: NewMessage,
    runtime: RuntimeDep,
    _: Operator,
    once: OnceDep,
    live: LiveDep,
) -> JSONResponse:
    """Send one message now, ahead of campaigns, in the number's own pace.

    200: Meta took it, with its `wamid`. 202: nobody knows; what becomes of `id` is at
    `/v1/messages/{id}`. Every other answer means that it was not sent, and that it never will be:
    409 the number is paused, all is halted, or the person may not be written to; 429 no permit
    within `max_wait_ms`, or Meta throttled; 503 Meta or what we need was away. 422 with an
    `error_code`: Meta refused it.
    """
    message = LiveMessage(
        body.phone(),
        body.kind,
        body.content(),
        body.context.message_id if body.context else None,
        body.max_wait_ms / 1000,
    )
    async with runtime.engine.begin() as connection:
        if not await once.begin(connection):
            return await _again(connection, once)
        try:
            written = await live.write(connection, phone_number_id, message)
        except LiveRefused as refused:
            raise refusal(refused) from None
        if written.row.barred is None:
            # Until the end is known; it is all that is left if this process dies.
            await once.keep(connection, Answer(202, _claimed(written.row.id)))
    if written.row.barred is not None:
        raise skipped(written.row)

    async def keep(connection: AsyncConnection, end: End) -> None:
        made = answer(end)
        if isinstance(made, Answer):
            await once.keep(connection, made)
        else:
            await once.forget(connection)

    made = answer(await live.send(written, keep))
    if isinstance(made, Problem):
        raise made
    return JSONResponse(made.body, made.status)


@router.get("/messages/{message_id}", **answers(LiveMessageNow))
async def get_message(
    message_id: Annotated[int, Path(ge=1, lt=1 << 63)], connection: ConnectionDep, _: Reader
) -> dict[str, Any]:
    """A live message: its status, when it came to each, and why it failed if it did."""
    found = await listing.live_message(connection, message_id)
    if found is None:
        raise Problem(404, "there is no live message with this id")
    return found


async def _again(connection: AsyncConnection, once: Once) -> JSONResponse:
    """The first answer; where the process died before it had one, what is known by now."""
    first = once.first()
    if first.body != _claimed(first.body["id"]):
        return once.again()
    now = await listing.live_message(connection, first.body["id"])
    status = Status(now["status"]) if now else Status.UNKNOWN
    if status is Status.CLAIMED:
        detail = "the first request with this Idempotency-Key is still running"
        raise Problem(409, detail, headers={"Retry-After": "1"})
    told = {"id": first.body["id"], "status": status, "wamid": now["wamid"] if now else None}
    taken = status in (Status.ACCEPTED, Status.SENT, Status.DELIVERED, Status.READ)
    return JSONResponse(told, 200 if taken else 202, {"Idempotency-Replayed": "true"})


def _claimed(message_id: int) -> dict[str, Any]:
    return {"id": message_id, "status": Status.CLAIMED.value, "wamid": None}
