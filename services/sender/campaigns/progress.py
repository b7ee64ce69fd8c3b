"""How far a campaign is, and why it is not sending now."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.campaigns.lifecycle import Campaign
from services.sender.campaigns.readiness import obstacles
from shared.db.counters import errors_met, totals
from shared.domain.campaigns import ENDED, Audience, CampaignState
from shared.whatsapp.errors import rule_for

_FACTS = text("""
SELECT
    (SELECT halted FROM installation) AS halted,
    n.state = 'paused' AND (n.paused_until IS NULL OR n.paused_until > now()) AS number_paused,
    n.paused_reason, n.paused_until,
    (SELECT min(due_at) FROM messages
     WHERE campaign_id = :campaign AND due_at IS NOT NULL) AS next_due,
    now() AS now
FROM numbers n WHERE n.phone_number_id = :number
""")

_UPLOADS = text("""
SELECT id, rows, accepted, duplicate, invalid, error, started_at, finished_at,
    CASE WHEN state = 'running' AND heartbeat_at < now() - interval '2 minutes'
         THEN 'failed' ELSE state END AS state
FROM uploads WHERE campaign_id = :campaign ORDER BY id DESC LIMIT 100
""")

_EVENTS = text("""
SELECT id, at, kind, actor, details FROM campaign_events
WHERE campaign_id = :campaign AND id > :after ORDER BY id LIMIT :limit
""")


@dataclass(frozen=True, slots=True)
class Holding:
    """One reason why nothing leaves: what would end it, or when it ends by itself."""

    reason: str
    detail: str | None
    cure: str | None
    ends_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class MetError:
    """A code of Meta's and how often this campaign met it, retries included."""

    code: int
    title: str
    met: int


async def counts(connection: AsyncConnection, campaign: Campaign) -> dict[str, int]:
    """Messages per status, and their `total`."""
    found = await totals(connection, campaign.id)
    return {
        **{status.value: number for status, number in found.items()},
        "total": sum(found.values()),
    }


async def holding(connection: AsyncConnection, campaign: Campaign) -> list[Holding]:
    """Everything that keeps the campaign from sending now; empty when it is over."""
    if campaign.state in ENDED:
        return []
    values = {"campaign": campaign.id, "number": campaign.phone_number_id}
    facts = (await connection.execute(_FACTS, values)).one()
    found = (
        _halted(facts),
        _number(facts, campaign),
        _state(campaign),
        await _not_ready(connection, campaign),
        _expired(facts, campaign),
        _due(facts, campaign),
    )
    return [one for one in found if one is not None]


def _halted(facts: Row[Any]) -> Holding | None:
    return Holding("halted", None, "POST /v1/unhalt") if facts.halted else None


def _number(facts: Row[Any], campaign: Campaign) -> Holding | None:
    if not facts.number_paused:
        return None
    cure = f"POST /v1/phone-numbers/{campaign.phone_number_id}/resume"
    return Holding("number_paused", facts.paused_reason, cure, facts.paused_until)


def _state(campaign: Campaign) -> Holding | None:
    place = f"POST /v1/campaigns/{campaign.public_id}"
    if campaign.state == CampaignState.PAUSED:
        return Holding("campaign_paused", campaign.pause_reason, f"{place}/resume")
    if campaign.state == CampaignState.DRAFT:
        return Holding("not_started", None, f"{place}/start")
    if campaign.state == CampaignState.SCHEDULED:
        return Holding("scheduled", None, f"{place}/start with another at", campaign.start_at)
    return None


async def _not_ready(connection: AsyncConnection, campaign: Campaign) -> Holding | None:
    """What would keep a scheduled campaign from starting, said before its time has come."""
    if campaign.state != CampaignState.SCHEDULED:
        return None
    found = await obstacles(connection, campaign)
    if not found:
        return None
    detail = "; ".join(one.detail for one in found)
    return Holding("not_ready", detail, "; ".join(one.cure for one in found))


def _expired(facts: Row[Any], campaign: Campaign) -> Holding | None:
    if campaign.expires_at is None or campaign.expires_at > facts.now:
        return None
    cure = f"PATCH /v1/campaigns/{campaign.public_id} with a later expires_at"
    return Holding("expired", "nothing leaves any more", cure)


def _due(facts: Row[Any], campaign: Campaign) -> Holding | None:
    if facts.next_due is not None:
        later = facts.next_due > facts.now
        return Holding("nothing_due", None, None, facts.next_due) if later else None
    place = f"POST /v1/campaigns/{campaign.public_id}"
    still_open = campaign.audience == Audience.OPEN
    cure = f"{place}/recipients, or {place}/close" if still_open else None
    return Holding("nothing_pending", "every recipient has been taken", cure)


async def uploads(connection: AsyncConnection, campaign: Campaign) -> list[dict[str, Any]]:
    """The newest uploads. One whose process died without a word counts as failed."""
    rows = await connection.execute(_UPLOADS, {"campaign": campaign.id})
    return [dict(row) for row in rows.mappings()]


async def events(
    connection: AsyncConnection, campaign: Campaign, after: int, limit: int
) -> list[dict[str, Any]]:
    """Who did what and why, the oldest first."""
    values = {"campaign": campaign.id, "after": after, "limit": limit}
    rows = await connection.execute(_EVENTS, values)
    return [dict(row) for row in rows.mappings()]


async def errors(connection: AsyncConnection, campaign: Campaign) -> list[MetError]:
    met = await errors_met(connection, campaign.id)
    # The HTTP status plays no part in a title.
    return [MetError(code, rule_for(code, 400).title, times) for code, times in met.items()]
