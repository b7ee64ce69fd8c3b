"""The moves of a campaign: each one conditional statement and one line in its event log."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

from pydantic_core import to_jsonable_python
from sqlalchemy import RowMapping, TextClause, bindparam, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.campaigns.order import first
from shared.db.campaigns import add_event
from shared.db.notices import WAKE
from shared.domain.campaigns import ENDED, Audience, CampaignState
from shared.domain.ids import uuid7

_COLUMNS = """
id, public_id, name, phone_number_id, state, pause_reason, audience, keep_open, template, endpoint,
unknown_policy, unknown_window_s, max_attempts, weight, default_country, labels, expires_at,
breaker, start_at, created_at, started_at, ended_at
"""

_CREATE = text(f"""
INSERT INTO campaigns (public_id, name, phone_number_id, keep_open, template, endpoint,
    unknown_policy, unknown_window_s, max_attempts, weight, default_country, labels, breaker,
    expires_at)
SELECT :public_id, :name, phone_number_id, :keep_open, :template, :endpoint,
    :unknown_policy, :unknown_window_s, :max_attempts, :weight, :default_country, :labels, :breaker,
    :expires_at
FROM numbers WHERE phone_number_id = :phone_number_id
RETURNING {_COLUMNS}
""")  # built from constants
_CREATE = _CREATE.bindparams(
    *(bindparam(name, type_=JSONB) for name in ("template", "labels", "breaker"))
)

_FIND = text(f"""
SELECT {_COLUMNS} FROM campaigns WHERE public_id = :public_id
""")  # built from constants
_FIND_HELD = text(f"""
SELECT {_COLUMNS} FROM campaigns WHERE public_id = :public_id FOR NO KEY UPDATE
""")  # built from constants
# A thousand templates may be large, and nobody reads them in a list.
_IN_LIST = _COLUMNS.replace(" template,", " template - 'components' AS template,")
_LIST = text(f"""
SELECT {_IN_LIST} FROM campaigns
WHERE state <> 'live' AND (CAST(:before AS bigint) IS NULL OR id < :before)
  AND (CAST(:state AS text) IS NULL OR state = :state)
ORDER BY id DESC LIMIT :limit
""")  # built from constants


def moving(change: str, condition: str) -> TextClause:
    """A statement that makes a move where its condition holds. Both are constants."""
    return text(
        f"UPDATE campaigns SET {change}"  # built from constants
        f" WHERE public_id = :public_id AND {condition} RETURNING {_COLUMNS}"
    )


_PAUSE = moving("state = 'paused', pause_reason = 'operator'", "state IN ('running', 'scheduled')")
# What has never run waits for its time again, or, when that has passed, for the scheduler's next
# look, which checks what every start checks. It would never start after its expiry.
_RESUME = moving(
    "state = CASE WHEN started_at IS NULL THEN 'scheduled' ELSE 'running' END,"
    " start_at = CASE WHEN started_at IS NULL THEN greatest(start_at, now()) ELSE start_at END,"
    " pause_reason = NULL",
    "state = 'paused'"
    " AND (started_at IS NOT NULL OR coalesce(expires_at > greatest(start_at, now()), true))",
)
_CANCEL = moving(
    "state = 'cancelled', pause_reason = NULL, audience = 'closed', ended_at = now()",
    "state IN ('draft', 'scheduled', 'running', 'paused')",
)
# Closed without anybody in it, it could neither start nor take anybody.
_CLOSE = moving(
    "audience = 'closed', keep_open = false",
    "audience = 'open' AND state IN ('draft', 'scheduled', 'running', 'paused')"
    f" AND ({first('campaigns.id')}) IS NOT NULL",
)

# What is not asked for stays. `expires_at` may be taken away, so its null is no silence. Looked at
# here, a new expiry does not slip past the start that another request is setting.
_CHANGE = moving(
    "weight = coalesce(:weight, weight), labels = coalesce(:labels, labels),"
    " breaker = coalesce(:breaker, breaker),"
    " expires_at = CASE WHEN :set_expires_at THEN CAST(:expires_at AS timestamptz)"
    " ELSE expires_at END",
    "state IN ('draft', 'scheduled', 'running', 'paused')"
    " AND (started_at IS NOT NULL OR start_at IS NULL OR NOT :set_expires_at"
    " OR coalesce(CAST(:expires_at AS timestamptz) > start_at, true))",
).bindparams(
    bindparam("labels", type_=JSONB(none_as_null=True)),
    bindparam("breaker", type_=JSONB(none_as_null=True)),
)

_HOLD = text("""
SELECT state, audience, coalesce(expires_at <= now(), false) AS expired
FROM campaigns WHERE id = :campaign FOR SHARE
""")


class CampaignRefused(Exception):  # noqa: N818  # what happened, in the words of the answer
    """The campaign's state does not allow it; the text names the state or what is missing."""


class UnknownCampaign(LookupError):  # noqa: N818  # what was asked for
    """There is no campaign with this id."""


class UnknownNumber(LookupError):  # noqa: N818  # what was asked for
    """There is no business number with this id."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign's row. `keep_open`: starting it does not close its audience.

    `start_at` is when it was to start, where it was scheduled; nothing leaves after `expires_at`.
    """

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
    expires_at: datetime | None
    breaker: dict[str, Any] | None
    start_at: datetime | None
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
    return await _find(connection, _FIND, public_id)


async def find_held(connection: AsyncConnection, public_id: UUID) -> Campaign:
    """The campaign, which nobody else moves before the transaction ends."""
    return await _find(connection, _FIND_HELD, public_id)


async def _find(connection: AsyncConnection, query: TextClause, public_id: UUID) -> Campaign:
    found = (await connection.execute(query, {"public_id": public_id})).mappings().first()
    if found is None:
        raise UnknownCampaign
    return _campaign(found)


async def newest(
    connection: AsyncConnection, before: int | None, state: str | None, limit: int
) -> list[Campaign]:
    """Campaigns by age, the newest first, their templates without components."""
    values = {"before": before, "state": state, "limit": limit}
    found = await connection.execute(_LIST, values)
    return [_campaign(row) for row in found.mappings()]


async def change(
    connection: AsyncConnection, public_id: UUID, changes: Mapping[str, Any], actor: str
) -> Campaign:
    """Change what is named of weight, labels, breaker and expiry, also while it runs."""
    values = {
        **{name: changes.get(name) for name in ("weight", "labels", "breaker", "expires_at")},
        "set_expires_at": "expires_at" in changes,
        "public_id": public_id,
    }
    details = to_jsonable_python(changes)
    return await transition(connection, _CHANGE, values, "changed", actor, details)


async def pause(connection: AsyncConnection, public_id: UUID, actor: str) -> Campaign:
    return await transition(connection, _PAUSE, {"public_id": public_id}, "paused", actor)


async def resume(connection: AsyncConnection, public_id: UUID, actor: str) -> Campaign:
    """Resume a paused campaign, whatever the reason: who resumes it has looked."""
    return await transition(connection, _RESUME, {"public_id": public_id}, "resumed", actor)


async def cancel(connection: AsyncConnection, public_id: UUID, actor: str) -> Campaign:
    """Nothing more leaves; what is on the wire ends as it ends."""
    return await transition(connection, _CANCEL, {"public_id": public_id}, "cancelled", actor)


async def close(connection: AsyncConnection, public_id: UUID, actor: str) -> Campaign:
    """No more recipients will come, so the campaign may complete."""
    return await transition(connection, _CLOSE, {"public_id": public_id}, "closed", actor)


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
    if row.expired:
        raise CampaignRefused("the campaign has expired: it takes no more recipients")


def cannot_be(moved: str, campaign: Campaign) -> str:
    """Why a move is refused, in words."""
    because = f" ({campaign.pause_reason})" if campaign.pause_reason else ""
    stands = f"the campaign is {campaign.state}{because} and its audience is {campaign.audience}"
    return f"{stands}: it cannot be {moved}"


def _refusal(kind: str, campaign: Campaign) -> str:
    """Why a move is refused; where the state allows it, for the reason of its other condition."""
    if kind == "changed" and campaign.state not in ENDED:
        return "the campaign would expire before its start"
    if kind == "resumed" and campaign.state == CampaignState.PAUSED:
        return "the campaign would expire before its start: give it a later expires_at first"
    if kind == "closed" and campaign.state not in ENDED and campaign.audience == Audience.OPEN:
        return "the campaign has no recipients yet: it cannot be closed"
    return cannot_be(kind, campaign)


async def transition(
    connection: AsyncConnection,
    move: TextClause,
    values: Mapping[str, Any],
    kind: str,
    actor: str,
    details: Mapping[str, Any] = MappingProxyType({}),
) -> Campaign:
    """Make a move that its own condition guards, log it and wake the workers."""
    moved = (await connection.execute(move, values)).mappings().first()
    if moved is None:
        now = await find(connection, values["public_id"])
        raise CampaignRefused(_refusal(kind, now))
    campaign = _campaign(moved)
    reason = {"reason": campaign.pause_reason} if kind == "paused" else {}
    await add_event(connection, campaign.id, kind, actor, **reason, **details)
    await connection.execute(WAKE)
    return campaign


def _campaign(row: RowMapping) -> Campaign:
    return Campaign(**row)
