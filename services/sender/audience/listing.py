"""Shows the recipients of a campaign and what became of their messages."""

import asyncio
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.campaigns.lifecycle import Campaign
from services.sender.campaigns.order import FOLLOWING
from shared.domain.status import Status
from shared.whatsapp.errors import rule_for

# Rows looked at for one page of a filtered list: a bound on its time, whatever the filter finds.
SCAN = 10_000

_MET = """
error_code IS NOT NULL AND (campaign_id, error_code, id) > (:campaign, :error_code, :after)
AND (campaign_id, error_code) <= (:campaign, :error_code) ORDER BY campaign_id, error_code, id
"""

_COLUMNS = """
m.id, r.phone, r.external_id, r.parameters::text AS parameters,
r.metadata::text AS metadata, m.status::text AS status, m.attempt,
m.spent, m.due_at, m.claimed_at, m.accepted_at, m.sent_at, m.delivered_at, m.read_at, m.failed_at,
m.error_code, m.reason, m.wamid
"""

_LIST = """
WITH scanned AS MATERIALIZED (
    SELECT * FROM messages WHERE {following} LIMIT :scan
), bounds AS (
    SELECT max(id) AS last, count(*) AS seen FROM scanned
), found AS MATERIALIZED (
    SELECT * FROM scanned WHERE CAST(:status AS text) IS NULL OR status::text = :status
    ORDER BY id LIMIT :limit
)
SELECT {columns}, bounds.last, bounds.seen
FROM bounds LEFT JOIN (found m JOIN recipients r ON r.id = m.id) ON true ORDER BY m.id
"""
_ALL = text(_LIST.format(columns=_COLUMNS, following=FOLLOWING))
# Two statements: a condition that may be off would keep Postgres from the index of the codes.
_WITH_CODE = text(_LIST.format(columns=_COLUMNS, following=_MET))

_ONE = text(f"""
SELECT {_COLUMNS} FROM messages m JOIN recipients r ON r.id = m.id
WHERE m.id = :id AND m.campaign_id = :campaign
""")  # built from constants

_LIVE = text("""
SELECT m.id, l.phone_number_id, l.phone, l.kind AS type, l.created_at, m.status::text AS status,
    m.accepted_at, m.sent_at, m.delivered_at, m.read_at, m.failed_at, m.error_code, m.reason,
    m.wamid
FROM live_messages l JOIN messages m ON m.id = l.id WHERE l.id = :id
""")

_ATTEMPTS = text("""
SELECT attempt, recorded_at, evidence_at, evidence::text AS evidence, error_code, outcome, wamid,
    details, fbtrace_id
FROM attempts WHERE message_id = :id ORDER BY attempt
""")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which recipients to list: None is all of them. `error_code` is the last one that was met."""

    status: Status | None = None
    error_code: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Recipients in the order of their ids; `next_id` is None when no more follow."""

    recipients: list[dict[str, Any]]
    next_id: int | None


async def recipients(
    connection: AsyncConnection, campaign: Campaign, wanted: Filter, after: int, limit: int
) -> Page:
    """A page after an id. A status looks at `SCAN` rows at most, so its page may be short."""
    scan = limit if wanted.status is None else SCAN
    values = {"campaign": campaign.id, "after": after, "scan": scan, "limit": limit}
    statement = _ALL if wanted.error_code is None else _WITH_CODE
    result = await connection.execute(statement, values | asdict(wanted))
    rows = result.mappings().all()
    found = [row for row in rows if row["id"] is not None]
    shown = await asyncio.to_thread(lambda: list(map(_shown, found)))  # a thousand take long
    return Page(shown, _next_id(rows[0], found, scan, limit))


def _next_id(bounds: RowMapping, found: list[RowMapping], scan: int, limit: int) -> int | None:
    if len(found) == limit:
        return int(found[-1]["id"])
    return int(bounds["last"]) if bounds["seen"] == scan else None


async def recipient(
    connection: AsyncConnection, campaign: Campaign, recipient_id: int
) -> dict[str, Any] | None:
    """One recipient with its attempts, or None."""
    values = {"id": recipient_id, "campaign": campaign.id}
    row = (await connection.execute(_ONE, values)).mappings().first()
    if row is None:
        return None
    attempts = await connection.execute(_ATTEMPTS, {"id": recipient_id})
    return _shown(row) | {"attempts": [_titled(one) for one in attempts.mappings()]}


async def live_message(connection: AsyncConnection, message_id: int) -> dict[str, Any] | None:
    """A live message with its attempt, where that did not end accepted, or None."""
    row = (await connection.execute(_LIVE, {"id": message_id})).mappings().first()
    if row is None:
        return None
    attempts = await connection.execute(_ATTEMPTS, {"id": message_id})
    return _titled(row) | {"attempts": [_titled(one) for one in attempts.mappings()]}


def _shown(row: RowMapping) -> dict[str, Any]:
    shown = _titled(row)
    for name in ("parameters", "metadata"):
        if shown[name] is not None:
            shown[name] = msgspec.Raw(shown[name].encode())  # JSON as it is
    shown.pop("last", None)
    shown.pop("seen", None)
    return shown


def _titled(row: RowMapping) -> dict[str, Any]:
    titled = dict(row)
    code = titled["error_code"]
    titled["error_title"] = None if code is None else rule_for(code, 400).title
    return titled
