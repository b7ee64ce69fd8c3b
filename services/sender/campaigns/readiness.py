"""What stands against a campaign's start: all of it at once, each with its cure."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.campaigns.lifecycle import Campaign, cannot_be
from services.sender.campaigns.order import first
from services.sender.campaigns.template import TemplateError, compile_template
from shared.domain.campaigns import ENDED, Audience, CampaignState
from shared.settings import SettingsError

TokenFor = Callable[[str | None], str]

# An upload without a heartbeat for two minutes has died with its process.
_FACTS = text(f"""
SELECT
    coalesce(expires_at <= now(), false) AS expired,
    ({first(":campaign")}) IS NULL AS empty,
    EXISTS (
        SELECT FROM uploads WHERE campaign_id = :campaign AND state = 'running'
        AND heartbeat_at > now() - interval '2 minutes'
    ) AS uploading
FROM campaigns WHERE id = :campaign
""")  # built from constants

_TOKEN = text("SELECT token_name FROM numbers WHERE phone_number_id = :number")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to know before a campaign starts, and its cure."""

    reason: str
    detail: str
    cure: str


async def obstacles(connection: AsyncConnection, campaign: Campaign) -> list[Finding]:
    """What is missing or in the way, whatever the campaign's state."""
    facts = (await connection.execute(_FACTS, {"campaign": campaign.id})).one()
    found = (
        _expired(facts, campaign),
        _uploading(facts, campaign),
        _empty(facts, campaign),
        _broken(campaign),
    )
    return [one for one in found if one is not None]


async def start_problems(
    connection: AsyncConnection,
    campaign: Campaign,
    states: Collection[str],
    token_for: TokenFor,
) -> list[Finding]:
    """What refuses the start of a campaign that has to be in one of `states`."""
    return [
        *([] if campaign.state in states else [_wrong_state(campaign, "started")]),
        *_shut(campaign),
        *await obstacles(connection, campaign),
        *await _without_token(connection, campaign, token_for),
    ]


def schedule_problems(campaign: Campaign, at: datetime) -> list[Finding]:
    """What refuses a start at a time ahead: whatever else is missing may come until then."""
    found = [] if _may_be_scheduled(campaign) else [_wrong_state(campaign, "scheduled")]
    found += _shut(campaign)
    if campaign.expires_at is not None and campaign.expires_at <= at:
        cure = f"PATCH {place(campaign)} with a later expires_at, or start it earlier"
        detail = "the campaign would expire before its start"
        found.append(Finding("expires_before_start", detail, cure))
    return found


def place(campaign: Campaign) -> str:
    """Where the API has it."""
    return f"/v1/campaigns/{campaign.public_id}"


def _shut(campaign: Campaign) -> list[Finding]:
    """Its close took the wish to keep it open away, so this start has asked for it again."""
    if not campaign.keep_open or campaign.audience == Audience.OPEN or campaign.state in ENDED:
        return []
    detail = "the audience has been closed, and cannot be kept open"
    return [Finding("audience_closed", detail, "start it without keep_open")]


def _expired(facts: Row[Any], campaign: Campaign) -> Finding | None:
    if not facts.expired:
        return None
    cure = f"PATCH {place(campaign)} with a later expires_at"
    return Finding("expired", "the campaign has expired", cure)


def _uploading(facts: Row[Any], campaign: Campaign) -> Finding | None:
    if campaign.keep_open or not facts.uploading:
        return None
    detail = "an upload is under way, and the start closes the audience"
    return Finding(
        "upload_under_way",
        detail,
        "wait for it, or keep the audience open at the start (keep_open)",
    )


def _empty(facts: Row[Any], campaign: Campaign) -> Finding | None:
    if not facts.empty:
        return None
    cure = f"POST {place(campaign)}/recipients"
    return Finding("no_recipients", "the campaign has no recipients", cure)


def _broken(campaign: Campaign) -> Finding | None:
    """Looked at when the campaign was made, maybe by a version that took what this one refuses."""
    try:
        compile_template(campaign.template)
    except TemplateError as error:
        cure = "a template never changes: POST /v1/campaigns for a new one"
        return Finding("template_broken", str(error), cure)
    return None


async def _without_token(
    connection: AsyncConnection, campaign: Campaign, token_for: TokenFor
) -> list[Finding]:
    name = await connection.scalar(_TOKEN, {"number": campaign.phone_number_id})
    try:
        token_for(name)
    except SettingsError as error:
        return [Finding("token_missing", str(error), "set it for every sender, and restart them")]
    return []


def _may_be_scheduled(campaign: Campaign) -> bool:
    """What was paused before it ever ran may get another time."""
    if campaign.state == CampaignState.PAUSED:
        return campaign.started_at is None
    return campaign.state in (CampaignState.DRAFT, CampaignState.SCHEDULED)


def _wrong_state(campaign: Campaign, move: str) -> Finding:
    cures: dict[str, str] = {
        CampaignState.SCHEDULED: f"POST {place(campaign)}/start with another at",
        CampaignState.PAUSED: f"POST {place(campaign)}/resume",
        CampaignState.RUNNING: f"GET {place(campaign)} says how far it is",
    }
    cure = cures.get(campaign.state, "POST /v1/campaigns for a new one")
    return Finding("wrong_state", cannot_be(move, campaign), cure)
