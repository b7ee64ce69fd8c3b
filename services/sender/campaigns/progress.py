"""How far a campaign is, what it met, and when it will be through."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.campaigns.holding import Holding
from services.sender.campaigns.lifecycle import Campaign
from shared.db.counters import errors_met, totals
from shared.whatsapp.errors import rule_for

_UPLOADS = text("""
SELECT id, rows, accepted, duplicate, invalid, started_at, finished_at,
    CASE WHEN state = 'running' AND heartbeat_at < now() - interval '2 minutes'
         THEN 'its process has died; upload the file again' ELSE error END AS error,
    CASE WHEN state = 'running' AND heartbeat_at < now() - interval '2 minutes'
         THEN 'failed' ELSE state END AS state
FROM uploads WHERE campaign_id = :campaign ORDER BY id DESC LIMIT 100
""")

_EVENTS = text("""
SELECT id, at, kind, actor, details FROM campaign_events
WHERE campaign_id = :campaign AND id > :after ORDER BY id LIMIT :limit
""")


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


def eta(pending: int, rate: float | None, held: Sequence[Holding]) -> datetime | None:
    """When the last pending message leaves at this pace; None while it does not send."""
    if not pending or not rate or any(one.reason != "throttled" for one in held):
        return None
    return datetime.now(UTC) + timedelta(seconds=pending / rate)


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
