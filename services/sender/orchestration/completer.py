"""Finishes campaigns that have nothing left to do."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.db.campaigns import add_event

_RUNNING = text("SELECT id FROM campaigns WHERE state = 'running' AND audience = 'closed'")

# The lock makes whoever requeues rows of this campaign wait, and waits for those who have begun.
_LOCK = text("SELECT id FROM campaigns WHERE id = :campaign AND state = 'running' FOR UPDATE")

# A statement of its own: its snapshot is newer than the lock, so it sees what they committed.
# An upload whose process died stops counting two minutes after its last sign of life.
_COMPLETE = text("""
UPDATE campaigns SET state = 'completed', ended_at = now()
WHERE id = :campaign AND state = 'running' AND audience = 'closed'
  AND NOT EXISTS (
      SELECT FROM uploads WHERE uploads.campaign_id = campaigns.id AND uploads.state = 'running'
        AND heartbeat_at > now() - interval '2 minutes')
  AND NOT EXISTS (
      SELECT FROM messages WHERE messages.campaign_id = campaigns.id AND due_at IS NOT NULL)
  AND NOT EXISTS (
      SELECT FROM messages WHERE messages.campaign_id = campaigns.id AND claimed_at IS NOT NULL
        AND (status = 'claimed' OR unknown_policy = 'resend'))
RETURNING id
""")


async def complete(engine: AsyncEngine) -> int:
    """Complete every campaign that is done; returns how many."""
    async with engine.connect() as connection:
        running = (await connection.execute(_RUNNING)).scalars().all()
    return sum([await _complete_one(engine, campaign_id) for campaign_id in running])


async def _complete_one(engine: AsyncEngine, campaign_id: int) -> bool:
    values = {"campaign": campaign_id}
    async with engine.begin() as connection:
        if await connection.scalar(_LOCK, values) is None:
            return False
        if await connection.scalar(_COMPLETE, values) is None:
            return False
        await add_event(connection, campaign_id, "completed", "completer")
        return True
