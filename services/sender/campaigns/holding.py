"""Why a campaign is not sending now: all reasons at once, each with what would end it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.campaigns.lifecycle import Campaign
from services.sender.campaigns.order import first
from services.sender.campaigns.readiness import TokenFor, obstacles
from services.sender.campaigns.vitals import Vitals
from shared.domain.campaigns import ENDED, Audience, CampaignState, PauseReason
from shared.settings import SettingsError

_FACTS = text(f"""
SELECT
    (SELECT halted FROM installation) AS halted,
    n.state = 'paused' AND (n.paused_until IS NULL OR n.paused_until > now()) AS number_paused,
    n.paused_reason, n.paused_until, n.token_name,
    (SELECT min(due_at) FROM messages
     WHERE campaign_id = :campaign AND due_at IS NOT NULL) AS next_due,
    ({first(":campaign")}) IS NULL AS empty,
    (SELECT details FROM campaign_events
     WHERE campaign_id = :campaign AND kind = 'paused' ORDER BY id DESC LIMIT 1) AS pause,
    now() AS now
FROM numbers n WHERE n.phone_number_id = :number
""")  # built from constants

_REDIS_CURE = "start Redis, or look at REDIS_URL: what waits leaves as soon as Redis answers"
_WORKER_CURE = "start a sender whose HEADRACE_ROLES name worker"
_SETTING_CURE = "set it for every sender, and restart them"

# What pauses a number for a while, in words, and what would end it.
_PAUSES = {
    "throttled": (
        "Meta said that the number sends too fast",
        "it goes on by itself, slower; if it comes again and again, give the number a lower rate",
    ),
    "meta_failing": (
        "Meta answers with errors of its own",
        "it tries again by itself, with one message",
    ),
    "meta_unreachable": (
        "no sender reaches Meta",
        "look at the network, DNS and HEADRACE_GRAPH_URL; it tries again by itself",
    ),
}


@dataclass(frozen=True, slots=True)
class Holding:
    """One reason why nothing leaves: what would end it, or when it ends by itself."""

    reason: str
    detail: str | None
    cure: str | None
    ends_at: datetime | None = None


async def holding(
    connection: AsyncConnection, campaign: Campaign, vitals: Vitals | None, token_for: TokenFor
) -> list[Holding]:
    """Everything that keeps the campaign from sending now; empty when it is over.

    `vitals` of its number: None when Redis is away.
    """
    if campaign.state in ENDED:
        return []
    values = {"campaign": campaign.id, "number": campaign.phone_number_id}
    facts = (await connection.execute(_FACTS, values)).one()
    found = (
        _halted(facts),
        _number(facts, campaign),
        _state(facts, campaign),
        await _not_ready(connection, campaign),
        _expired(facts, campaign),
        _due(facts, campaign),
        _machinery(vitals),
        _token(facts, campaign, vitals, token_for),
        _pause(campaign, vitals),
    )
    return [one for one in found if one is not None]


def _halted(facts: Row[Any]) -> Holding | None:
    return Holding("halted", None, "POST /v1/unhalt") if facts.halted else None


def _number(facts: Row[Any], campaign: Campaign) -> Holding | None:
    if not facts.number_paused:
        return None
    cure = f"POST /v1/phone-numbers/{campaign.phone_number_id}/resume"
    return Holding("number_paused", facts.paused_reason, cure, facts.paused_until)


def _state(facts: Row[Any], campaign: Campaign) -> Holding | None:
    place = f"POST /v1/campaigns/{campaign.public_id}"
    if campaign.state == CampaignState.PAUSED:
        return Holding("campaign_paused", _why_paused(facts, campaign), _resumed(campaign, place))
    if campaign.state == CampaignState.DRAFT:
        return Holding("not_started", None, f"{place}/start")
    if campaign.state == CampaignState.SCHEDULED:
        return Holding("scheduled", None, f"{place}/start with another at", campaign.start_at)
    return None


def _why_paused(facts: Row[Any], campaign: Campaign) -> str | None:
    """The reason, and what of Meta's is behind it."""
    told = facts.pause or {}
    if told.get("reason") != campaign.pause_reason:
        return campaign.pause_reason
    if campaign.pause_reason == PauseReason.BREAKER:
        codes = ", ".join(f"{code} ({met})" for code, met in told["codes"].items())
        return f"breaker: {told['failures']} of {told['outcomes']} failed, by code: {codes}"
    code = told.get("code")
    return f"{campaign.pause_reason}: Meta's code {code}" if code is not None else told["reason"]


def _resumed(campaign: Campaign, place: str) -> str:
    """What Meta misses is mended first; a campaign never takes another template."""
    if campaign.pause_reason != PauseReason.TEMPLATE:
        return f"{place}/resume"
    name, language = campaign.template.get("name"), campaign.template.get("language")
    return (
        f"at Meta, have the template {name} approved in {language}, exactly so written, then"
        f" {place}/resume; for another template, cancel this campaign and make a new one"
    )


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
    if facts.empty:
        return Holding("no_recipients", "the campaign has no recipients", f"{place}/recipients")
    still_open = campaign.audience == Audience.OPEN
    cure = f"{place}/recipients, or {place}/close" if still_open else None
    return Holding("nothing_pending", "every recipient has been taken", cure)


def _machinery(vitals: Vitals | None) -> Holding | None:
    if vitals is None:
        return Holding("redis_away", "without Redis nothing is sent", _REDIS_CURE)
    if not vitals.workers:
        return Holding("no_worker", "no sender that sends is running", _WORKER_CURE)
    return None


def _token(
    facts: Row[Any], campaign: Campaign, vitals: Vitals | None, token_for: TokenFor
) -> Holding | None:
    """What every worker says; what this process lacks, unless the campaign is sending."""
    problem = vitals.numbers[campaign.phone_number_id].token_problem if vitals else None
    if problem is None and not (vitals and vitals.rate):
        problem = _own_problem(token_for, facts.token_name)
    return None if problem is None else Holding("token_missing", problem, _SETTING_CURE)


def _own_problem(token_for: TokenFor, name: str | None) -> str | None:
    try:
        token_for(name)
    except SettingsError as error:
        return str(error)
    return None


def _pause(campaign: Campaign, vitals: Vitals | None) -> Holding | None:
    pause = vitals.numbers[campaign.phone_number_id].pause if vitals else None
    if pause is None:
        return None
    detail, cure = _PAUSES[pause.reason]
    return Holding(pause.reason, detail, cure, pause.ends_at)
