"""The transitions of a campaign: each one conditional statement and one line in its event log."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping, TextClause, bindparam, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.campaigns.template import compile_template
from shared.db.campaigns import add_event
from shared.db.notices import WAKE
from shared.domain.campaigns import ENDED, Audience, CampaignState
from shared.domain.ids import uuid7

_COLUMNS = """
id, public_id, name, phone_number_id, state, pause_reason, audience, keep_open, template, endpoint,
unknown_policy, unknown_window_s, max_attempts, weight, default_country, labels, created_at,
started_at, ended_at
"""

_CREATE = text(f"""
INSERT INTO campaigns (public_id, name, phone_number_id, keep_open, template, endpoint,
    unknown_policy, unknown_window_s, max_attempts, weight, default_country, labels)
SELECT :public_id, :name, phone_number_id, :keep_open, :template, :endpoint,
    :unknown_policy, :unknown_window_s, :max_attempts, :weight, :default_country, :labels
FROM numbers WHERE phone_number_id = :phone_number_id
RETURNING {_COLUMNS}
""")  # built from constants
_CREATE = _CREATE.bindparams(bindparam("template", type_=JSONB), bindparam("labels", type_=JSONB))

_FIND = text(f"""
SELECT {_COLUMNS} FROM campaigns WHERE public_id = :public_id
""")  # built from constants
_LIST = text(f"""
SELECT {_COLUMNS} FROM campaigns
WHERE (CAST(:before AS bigint) IS NULL OR id < :before)
  AND (CAST(:state AS text) IS NULL OR state = :state)
ORDER BY id DESC LIMIT :limit
""")  # built from constants


def _move(change: str, condition: str) -> TextClause:
    return text(
        f"UPDATE campaigns SET {change}"  # built from constants
        f" WHERE public_id = :public_id AND {condition} RETURNING {_COLUMNS}"
    )


_START = _move(
    "state = 'running', started_at = now(), keep_open = keep_open OR :keep_open,"
    " audience = CASE WHEN keep_open OR :keep_open THEN audience ELSE 'closed' END",
    "state = 'draft'",
)
_PAUSE = _move("state = 'paused', pause_reason = 'operator'", "state = 'running'")
_RESUME = _move("state = 'running', pause_reason = NULL", "state = 'paused'")
_CANCEL = _move(
    "state = 'cancelled', pause_reason = NULL, audience = 'closed', ended_at = now()",
    "state IN ('draft', 'scheduled', 'running', 'paused')",
)
_CLOSE = _move(
    "audience = 'closed', keep_open = false",
    "audience = 'open' AND state IN ('draft', 'scheduled', 'running', 'paused')",
)

# An upload without a heartbeat for two minutes has died with its process.
_START_FACTS = text("""
SELECT
    (SELECT r.parameters FROM recipients r WHERE r.id = (
        SELECT id FROM messages WHERE campaign_id = :campaign ORDER BY id LIMIT 1
    )) AS first,
    EXISTS (
        SELECT FROM uploads WHERE campaign_id = :campaign AND state = 'running'
        AND heartbeat_at > now() - interval '2 minutes'
    ) AS uploading
""")

_HOLD = text("SELECT state, audience FROM campaigns WHERE id = :campaign FOR SHARE")


class CampaignRefused(Exception):  # noqa: N818  # what happened, in the words of the answer
    """The campaign's state does not allow it; the text names the state or what is missing."""


class UnknownCampaign(LookupError):  # noqa: N818  # what was asked for
    """There is no campaign with this id."""


class UnknownNumber(LookupError):  # noqa: N818  # what was asked for
    """There is no business number with this id."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign's row. `keep_open`: starting it does not close its audience."""

    id: int
    public_id: UUID
    name: str
    phone_number_id: str
    state: str
    pause_reason: str | None
    audience: str
    keep_open: bool
    template: dict[str, Any]
    endpoint: str
    unknown_policy: str
    unknown_window_s: int
    max_attempts: int
    weight: int
    default_country: str | None
    labels: dict[str, str]
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


async def create(connection: AsyncConnection, draft: Mapping[str, Any], actor: str) -> Campaign:
    """Create a draft. Raises `UnknownNumber`."""
    values = {"public_id": uuid7(), **draft}
    found = (await connection.execute(_CREATE, values)).mappings().first()
    if found is None:
        raise UnknownNumber
    campaign = _campaign(found)
    await add_event(connection, campaign.id, "created", actor)
    return campaign


async def find(connection: AsyncConnection, public_id: UUID) -> Campaign:
    """The campaign. Raises `UnknownCampaign`."""
    found = (await connection.execute(_FIND, {"public_id": public_id})).mappings().first()
    if found is None:
        raise UnknownCampaign
    return _campaign(found)


async def newest(
    connection: AsyncConnection, before: int | None, state: str | None, limit: int
) -> list[Campaign]:
    """Campaigns by age, the newest first."""
    values = {"before": before, "state": state, "limit": limit}
    found = await connection.execute(_LIST, values)
    return [_campaign(row) for row in found.mappings()]


async def start(
    connection: AsyncConnection, public_id: UUID, actor: str, *, keep_open: bool
) -> Campaign:
    """Start a draft that has recipients and what its template needs of them."""
    before = await find(connection, public_id)
    if before.state == CampaignState.DRAFT:
        await _check_start(connection, before, keep_open=keep_open or before.keep_open)
    values = {"public_id": public_id, "keep_open": keep_open}
    return await _transition(connection, _START, values, "started", actor)


async def pause(connection: AsyncConnection, public_id: UUID, actor: str) -> Campaign:
    return await _transition(connection, _PAUSE, {"public_id": public_id}, "paused", actor)


async def resume(connection: AsyncConnection, public_id: UUID, actor: str) -> Campaign:
    """Resume a paused campaign, whatever the reason: who resumes it has looked."""
    return await _transition(connection, _RESUME, {"public_id": public_id}, "resumed", actor)


async def cancel(connection: AsyncConnection, public_id: UUID, actor: str) -> Campaign:
    """Nothing more leaves; what is on the wire ends as it ends."""
    return await _transition(connection, _CANCEL, {"public_id": public_id}, "cancelled", actor)


async def close(connection: AsyncConnection, public_id: UUID, actor: str) -> Campaign:
    """No more recipients will come, so the campaign may complete."""
    return await _transition(connection, _CLOSE, {"public_id": public_id}, "closed", actor)


async def hold_open(connection: AsyncConnection, campaign_id: int) -> None:
    """Keep the campaign from being closed or moved until the transaction ends.

    Raises `CampaignRefused` when it takes no more recipients.
    """
    row = (await connection.execute(_HOLD, {"campaign": campaign_id})).one()
    if row.audience != Audience.OPEN or row.state in ENDED:
        raise CampaignRefused(
            f"the campaign is {row.state} and its audience is {row.audience}:"
            " it takes no more recipients"
        )


async def _check_start(connection: AsyncConnection, campaign: Campaign, *, keep_open: bool) -> None:
    facts = (await connection.execute(_START_FACTS, {"campaign": campaign.id})).one()
    if facts.uploading and not keep_open:
        raise CampaignRefused(
            "an upload is under way, and starting closes the audience:"
            " wait for it, or start with keep_open"
        )
    if facts.first is None:
        raise CampaignRefused("the campaign has no recipients: upload some first")
    columns = compile_template(campaign.template).columns
    missing = [column for column in columns if column not in facts.first]
    if missing:
        raise CampaignRefused(
            f"the template needs columns that the recipients do not have: {', '.join(missing)}"
        )


async def _transition(
    connection: AsyncConnection,
    move: TextClause,
    values: Mapping[str, Any],
    kind: str,
    actor: str,
) -> Campaign:
    """Make a move that its own condition guards, log it and wake the workers."""
    moved = (await connection.execute(move, values)).mappings().first()
    if moved is None:
        now = await find(connection, values["public_id"])
        because = f" ({now.pause_reason})" if now.pause_reason else ""
        raise CampaignRefused(
            f"the campaign is {now.state}{because} and its audience is {now.audience}:"
            f" it cannot be {kind}"
        )
    campaign = _campaign(moved)
    reason = {"reason": campaign.pause_reason} if campaign.pause_reason else {}
    await add_event(connection, campaign.id, kind, actor, **reason)
    await connection.execute(WAKE)
    return campaign


def _campaign(row: RowMapping) -> Campaign:
    return Campaign(**row)
