"""Campaigns: created, looked at, and moved through their life."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from pydantic_core import to_jsonable_python
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.api.answers import (
    CampaignNow,
    Event,
    ListedCampaign,
    Page,
    ShownCampaign,
    answers,
)
from services.sender.api.campaign_shapes import Change, NewCampaign, Start
from services.sender.api.checks import refusal
from services.sender.api.connection import ConnectionDep
from services.sender.api.idempotency import Answer, OnceDep
from services.sender.api.keys import Operator, Reader
from services.sender.api.paging import Cursor, Limit, after, cut, page
from services.sender.api.process import RuntimeDep
from services.sender.campaigns import lifecycle, progress, starts
from services.sender.campaigns.holding import holding
from services.sender.campaigns.lifecycle import Campaign
from services.sender.campaigns.progress import MetError
from services.sender.campaigns.starts import NotReady
from services.sender.pipeline.vitals import read_vitals
from shared.domain.campaigns import ENDED, Audience, BreakerLimit, CampaignState
from shared.web import Problem

router = APIRouter(prefix="/v1/campaigns", tags=["campaigns"])

_NOW = text("SELECT clock_timestamp()")

# A refused start says what a check does, beside what every refusal says.
_REFUSED = [{"$ref": f"#/components/schemas/{name}"} for name in ("ProblemAnswer", "Check")]
_NOT_READY: Final = {
    "responses": {
        "409": {
            "description": "What stands against the start, as a check says it",
            "content": {
                "application/problem+json": {
                    "schema": {"anyOf": [_REFUSED[0], {"allOf": _REFUSED}]}
                }
            },
        }
    }
}


@router.post("", **answers(ShownCampaign, 201))
async def create(
    body: NewCampaign,
    runtime: RuntimeDep,
    connection: ConnectionDep,
    caller: Operator,
    once: OnceDep,
) -> JSONResponse:
    """Create a draft."""
    least = runtime.settings.least_unknown_window_s
    if body.unknown_window < least:
        raise Problem(422, f"unknown_window must be at least {least} s: a send may take that long")

    async def effect() -> Answer:
        draft = _draft(body) | {
            "expires_at": await _future(connection, "expires_at", body.expires_at)
        }
        return Answer(201, _shown(await lifecycle.create(connection, draft, caller.actor)))

    return await once.run(connection, effect)


@router.get("", **answers(Page[ListedCampaign]))
async def list_campaigns(
    connection: ConnectionDep,
    _: Reader,
    state: Annotated[CampaignState | None, Query()] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> dict[str, Any]:
    """The newest first, each without the `components` of its template."""
    found = await lifecycle.newest(connection, after(cursor), state, limit)
    following = found[-1].id if len(found) == limit else None
    return page([_shown(campaign) for campaign in found], following)


@router.get("/{campaign_id}", **answers(CampaignNow))
async def get_campaign(
    campaign_id: UUID, runtime: RuntimeDep, connection: ConnectionDep, _: Reader
) -> dict[str, Any]:
    """A campaign with its `counts`, its uploads, what holds it now, and how fast it sends.

    `rate`: messages a second over the last ten; null while Redis is away. `eta`: when the last one
    leaves at that pace; null while it does not send.
    """
    campaign = await lifecycle.find(connection, campaign_id)
    number = [campaign.phone_number_id]
    vitals = await read_vitals(runtime.redis, runtime.patience, number, campaign.id)
    counts = await progress.counts(connection, campaign)
    held = await holding(connection, campaign, vitals, runtime.settings.token_for)
    rate = vitals.rate if vitals else None
    if campaign.state in ENDED:
        rate = 0.0  # whatever left in the last seconds: nothing follows
    return _shown(campaign) | {
        "counts": counts,
        "rate": rate,
        "eta": progress.eta(counts["pending"], rate, held),
        "holding": held,
        "uploads": await progress.uploads(connection, campaign),
    }


@router.post("/{campaign_id}/start", openapi_extra=_NOT_READY, **answers(ShownCampaign))
async def start(
    campaign_id: UUID,
    runtime: RuntimeDep,
    connection: ConnectionDep,
    caller: Operator,
    once: OnceDep,
    body: Start | None = None,
) -> JSONResponse:
    """Start a draft, now or `at` a time; its start closes its audience unless it is kept open.

    With `at`, also a scheduled campaign, or one whose start was missed, gets another time. What
    `check` would call a problem is refused with what `check` says.
    """
    asked = body or Start()

    async def effect() -> Answer:
        at = await _future(connection, "at", asked.at)
        actor, keep_open = caller.actor, asked.keep_open
        token_for = runtime.settings.token_for
        try:
            if at is None:
                moved = await starts.start(
                    connection, campaign_id, actor, token_for, keep_open=keep_open
                )
            else:
                moved = await starts.schedule(
                    connection, campaign_id, at, actor, keep_open=keep_open
                )
        except NotReady as refused:
            raise await refusal(connection, refused, runtime.settings) from None
        return Answer(200, _shown(moved))

    return await once.run(connection, effect)


@router.patch("/{campaign_id}", **answers(ShownCampaign))
async def change(
    campaign_id: UUID, body: Change, connection: ConnectionDep, caller: Operator
) -> dict[str, Any]:
    """Change a campaign that has not ended, also while it runs."""
    changes = body.model_dump(exclude_unset=True)
    if body.breaker.model_fields_set:
        changes["breaker"] = body.breaker.model_dump()  # the usual for what is left out
    if not changes:
        raise Problem(422, "nothing to change: give weight, labels, breaker or expires_at")
    if "expires_at" in changes:
        changes["expires_at"] = await _future(connection, "expires_at", body.expires_at)
    return _shown(await lifecycle.change(connection, campaign_id, changes, caller.actor))


@router.post("/{campaign_id}/pause", **answers(ShownCampaign))
async def pause(campaign_id: UUID, connection: ConnectionDep, caller: Operator) -> dict[str, Any]:
    """No claim that starts after this answer takes a row of the campaign."""
    return _shown(await lifecycle.pause(connection, campaign_id, caller.actor))


@router.post("/{campaign_id}/resume", **answers(ShownCampaign))
async def resume(
    campaign_id: UUID, connection: ConnectionDep, caller: Operator, once: OnceDep
) -> JSONResponse:
    async def effect() -> Answer:
        return Answer(200, _shown(await lifecycle.resume(connection, campaign_id, caller.actor)))

    return await once.run(connection, effect)


@router.post("/{campaign_id}/cancel", **answers(ShownCampaign))
async def cancel(campaign_id: UUID, connection: ConnectionDep, caller: Operator) -> dict[str, Any]:
    """For good: what has not left becomes skipped."""
    return _shown(await lifecycle.cancel(connection, campaign_id, caller.actor))


@router.post("/{campaign_id}/close", **answers(ShownCampaign))
async def close(campaign_id: UUID, connection: ConnectionDep, caller: Operator) -> dict[str, Any]:
    """No more recipients will come."""
    return _shown(await lifecycle.close(connection, campaign_id, caller.actor))


@router.get("/{campaign_id}/events", **answers(Page[Event]))
async def list_events(
    campaign_id: UUID,
    connection: ConnectionDep,
    _: Reader,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> dict[str, Any]:
    """Who did what and why, the oldest first.

    While uploads end, an event may appear just before ones that were there already: who goes on
    with a cursor at such a moment does not see it.
    """
    campaign = await lifecycle.find(connection, campaign_id)
    found = await progress.events(connection, campaign, after(cursor) or 0, limit)
    following = found[-1]["id"] if len(found) == limit else None
    return page(found, following)


@router.get("/{campaign_id}/errors", **answers(Page[MetError]))
async def list_errors(
    campaign_id: UUID,
    connection: ConnectionDep,
    _: Reader,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> dict[str, Any]:
    """Meta's codes that the campaign met, the most frequent first."""
    campaign = await lifecycle.find(connection, campaign_id)
    return page(*cut(await progress.errors(connection, campaign), cursor, limit))


async def _future(connection: AsyncConnection, field: str, at: datetime | None) -> datetime | None:
    """The time in UTC, after now by the database's clock, as everything that is done by it.

    Not looked at before an idempotent answer is: a repeat may come later.
    """
    if at is None:
        return None
    try:
        at = at.astimezone(UTC)
    except OverflowError:
        at = datetime.min.replace(tzinfo=UTC)
    if at <= (await connection.execute(_NOW)).scalar_one():
        error = {"field": f"body.{field}", "message": "must be a time in the future"}
        raise Problem(422, f"{field} must be a time in the future", errors=[error])
    return at


def _draft(body: NewCampaign) -> dict[str, Any]:
    draft = body.model_dump(mode="json", exclude={"audience", "unknown_window", "expires_at"})
    keep_open = body.audience is Audience.OPEN
    return draft | {"keep_open": keep_open, "unknown_window_s": body.unknown_window}


def _shown(campaign: Campaign) -> dict[str, Any]:
    shown: dict[str, Any] = to_jsonable_python(asdict(campaign))
    shown["id"] = shown.pop("public_id")
    shown["unknown_window"] = shown.pop("unknown_window_s")
    shown["breaker"] = asdict(BreakerLimit.of(campaign.breaker))
    return shown
