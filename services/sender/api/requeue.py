"""What an operator decides of a campaign's failed and unknown rows."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from services.sender.api.answers import Requeued, Settled, answers
from services.sender.api.connection import ConnectionDep
from services.sender.api.idempotency import Answer, OnceDep
from services.sender.api.keys import Operator
from services.sender.api.paging import after, cursor_of
from services.sender.campaigns import lifecycle
from services.sender.campaigns.requeue import Wanted, retry, settle
from shared.domain.status import Status

router = APIRouter(prefix="/v1/campaigns/{campaign_id}", tags=["campaigns"])

Code = Annotated[int, Field(ge=0, lt=1 << 31)]
# In the body, where an Idempotency-Key tells one step from the next.
From = Annotated[
    str | None, Field(max_length=32, description="`next_cursor` of the answer before, to go on")
]


class Retry(BaseModel):
    """Which rows: of these last codes of Meta's or, without `error_codes`, of any or none."""

    model_config = ConfigDict(extra="forbid")

    status: Literal["failed", "unknown"]
    error_codes: list[Code] | None = Field(None, min_length=1, max_length=100)
    settled: bool = Field(
        default=False,
        description="Of the failed, those too that were settled: they may have arrived",
    )
    cursor: From = None


class Settle(BaseModel):
    """What unknown rows become."""

    model_config = ConfigDict(extra="forbid")

    become: Literal["failed"] = Field(alias="as")
    cursor: From = None


@router.post("/retry", **answers(Requeued))
async def retry_rows(
    campaign_id: UUID, body: Retry, connection: ConnectionDep, caller: Operator, once: OnceDep
) -> JSONResponse:
    """Send failed or unknown rows again, each as a new attempt with a fresh budget of attempts.

    One call moves some thousands; go on with its `next_cursor` as `cursor` until that is null. A
    completed campaign runs again. An unknown message may have arrived, and then arrives twice:
    so may one that was settled as failed, which is left out unless `settled` asks for it.
    """

    async def effect() -> Answer:
        campaign = await lifecycle.find(connection, campaign_id)
        codes, start = frozenset(body.error_codes or ()), after(body.cursor) or 0
        wanted = Wanted(Status(body.status), codes, body.settled)
        step = await retry(connection, campaign, wanted, start, caller.actor)
        return Answer(200, {"requeued": step.moved, "next_cursor": cursor_of(step.next_id)})

    return await once.run(connection, effect)


@router.post("/settle", **answers(Settled))
async def settle_rows(
    campaign_id: UUID, body: Settle, connection: ConnectionDep, caller: Operator, once: OnceDep
) -> JSONResponse:
    """Close what stayed unknown: it counts as failed until evidence says otherwise.

    One call moves some thousands; go on with its `next_cursor` as `cursor` until that is null.
    """

    async def effect() -> Answer:
        campaign = await lifecycle.find(connection, campaign_id)
        step = await settle(connection, campaign, after(body.cursor) or 0, caller.actor)
        return Answer(200, {"settled": step.moved, "next_cursor": cursor_of(step.next_id)})

    return await once.run(connection, effect)
