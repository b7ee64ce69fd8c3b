"""Starts scheduled campaigns when their time has come, and pauses those whose time was missed."""

from functools import partial
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.campaigns.lifecycle import CampaignRefused
from services.sender.campaigns.starts import start_due
from shared.db.campaigns import add_event
from shared.domain.campaigns import PauseReason
from shared.periodic import each

_ACTOR = "scheduler"

_DUE = text("""
SELECT public_id FROM campaigns WHERE state = 'scheduled' AND start_at <= now() ORDER BY start_at
""")

# What should have started while nobody was there, or was not ready for an hour, waits for a person:
# a message meant for the morning may be wrong at night.
_MISSED = text("""
WITH missed AS MATERIALIZED (
    SELECT id FROM campaigns
    WHERE state = 'scheduled' AND start_at < now() - interval '1 hour'
    ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE campaigns SET state = 'paused', pause_reason = :reason
FROM missed WHERE campaigns.id = missed.id RETURNING campaigns.id
""")


async def start_scheduled(engine: AsyncEngine) -> int:
    """Pause what was missed, then start what is due and ready; returns how many moved."""
    missed = await _pause_missed(engine)
    async with engine.connect() as connection:
        due = (await connection.execute(_DUE)).scalars().all()
    return missed + await each(due, partial(_start_one, engine), name=_ACTOR)


async def _pause_missed(engine: AsyncEngine) -> int:
    reason = PauseReason.SCHEDULE_MISSED
    async with engine.begin() as connection:
        missed = (await connection.execute(_MISSED, {"reason": reason})).scalars().all()
        for campaign_id in missed:
            await add_event(connection, campaign_id, "paused", _ACTOR, reason=reason)
    return len(missed)


async def _start_one(engine: AsyncEngine, public_id: UUID) -> bool:
    """False when it is not ready, which `holding` says, or when another replica was faster."""
    try:
        async with engine.begin() as connection:
            await start_due(connection, public_id, _ACTOR)
    except CampaignRefused:
        return False
    return True
