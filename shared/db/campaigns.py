"""Moves of a campaign that both services make, each with its line in the event log."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.db.notices import WAKE
from shared.domain.campaigns import CampaignState, PauseReason

_EVENT = text("""
INSERT INTO campaign_events (campaign_id, kind, actor, details)
VALUES (:campaign, :kind, :actor, :details)
""").bindparams(bindparam("details", type_=JSONB))

_REOPEN = text("""
WITH completed AS MATERIALIZED (
    SELECT id FROM campaigns WHERE id = ANY(CAST(:campaigns AS bigint[])) AND state = 'completed'
    ORDER BY id FOR NO KEY UPDATE
)
UPDATE campaigns SET state = 'running', ended_at = NULL
FROM completed WHERE campaigns.id = completed.id RETURNING campaigns.id
""")

# The weakest lock: the completer's FOR UPDATE waits for it, a pause or a cancel does not.
_SHARE = text("""
SELECT state FROM campaigns WHERE id = ANY(CAST(:campaigns AS bigint[])) ORDER BY id FOR KEY SHARE
""")

_PAUSE = text("""
WITH running AS MATERIALIZED (
    SELECT id FROM campaigns WHERE id = ANY(CAST(:campaigns AS bigint[])) AND state = 'running'
    ORDER BY id FOR NO KEY UPDATE
)
UPDATE campaigns SET state = 'paused', pause_reason = :reason
FROM running WHERE campaigns.id = running.id RETURNING campaigns.id
""")


async def add_event(
    connection: AsyncConnection, campaign_id: int, kind: str, actor: str, **details: Any
) -> None:
    """Log who did what to a campaign, and why."""
    values = {"campaign": campaign_id, "kind": kind, "actor": actor, "details": details}
    await connection.execute(_EVENT, values)


async def keep_running(
    connection: AsyncConnection, campaign_ids: Collection[int], actor: str
) -> None:
    """Make sure that campaigns whose rows become pending again are not completed.

    Call it in the transaction that requeues, before its rows are locked. A completed campaign runs
    again; the shared lock then makes the completer wait until the pending rows can be seen. What
    was completed between the two is reopened under the lock.
    """
    campaigns = sorted(set(campaign_ids))
    await _reopen(connection, campaigns, actor)
    states = (await connection.execute(_SHARE, {"campaigns": campaigns})).scalars().all()
    if CampaignState.COMPLETED in states:
        await _reopen(connection, campaigns, actor)


async def _reopen(connection: AsyncConnection, campaigns: list[int], actor: str) -> None:
    for row in (await connection.execute(_REOPEN, {"campaigns": campaigns})).all():
        await add_event(connection, row.id, "reopened", actor)


async def pause_campaigns(
    connection: AsyncConnection,
    campaign_ids: Collection[int],
    reason: PauseReason,
    actor: str,
    **details: Any,
) -> list[int]:
    """Pause those of the campaigns that run, and say so to every worker; returns them."""
    values = {"campaigns": sorted(set(campaign_ids)), "reason": reason}
    paused = [row.id for row in await connection.execute(_PAUSE, values)]
    if paused:
        await connection.execute(WAKE)
    for campaign_id in paused:
        await add_event(connection, campaign_id, "paused", actor, reason=reason, **details)
    return paused
