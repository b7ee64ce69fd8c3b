"""Finishes campaigns that have nothing left to do."""

from functools import partial

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.db.campaigns import add_event
from shared.periodic import each

_ACTOR = "completer"

# An upload whose process died stops counting two minutes after its last sign of life. An expired
# campaign takes no more recipients and sends nothing again, whatever its settings say, and nobody
# needs to resume it for that. ORDER BY and LIMIT hold the planner to the partial indexes: it would
# read the table for a mere EXISTS.
_DONE = """
(state = 'running' AND audience = 'closed'
 OR state IN ('running', 'paused') AND expires_at <= now())
AND NOT EXISTS (
    SELECT FROM uploads WHERE uploads.campaign_id = campaigns.id AND uploads.state = 'running'
      AND heartbeat_at > now() - interval '2 minutes')
AND (SELECT due_at FROM messages
     WHERE messages.campaign_id = campaigns.id AND due_at IS NOT NULL
     ORDER BY due_at LIMIT 1) IS NULL
AND (SELECT claimed_at FROM messages
     WHERE messages.campaign_id = campaigns.id AND claimed_at IS NOT NULL
       AND (status = 'claimed'
            OR unknown_policy = 'resend' AND coalesce(expires_at > now(), true))
     ORDER BY claimed_at DESC LIMIT 1) IS NULL
"""

_FIND = text(f"SELECT id FROM campaigns WHERE {_DONE}")  # built from constants

# The lock makes whoever requeues rows of this campaign wait, and waits for those who have begun.
_LOCK = text("SELECT id FROM campaigns WHERE id = :campaign FOR UPDATE")

# A statement of its own: its snapshot is newer than the lock, so it sees what they committed.
_COMPLETE = text(f"""
UPDATE campaigns SET state = 'completed', pause_reason = NULL, ended_at = now()
WHERE id = :campaign AND {_DONE} RETURNING coalesce(expires_at <= now(), false) AS expired
""")  # built from constants


async def complete(engine: AsyncEngine) -> int:
    """Complete every campaign that is done; returns how many."""
    async with engine.connect() as connection:
        done = (await connection.execute(_FIND)).scalars().all()
    return await each(done, partial(_complete_one, engine), name=_ACTOR)


async def _complete_one(engine: AsyncEngine, campaign_id: int) -> bool:
    values = {"campaign": campaign_id}
    async with engine.begin() as connection:
        await connection.execute(_LOCK, values)
        expired = await connection.scalar(_COMPLETE, values)
        if expired is None:
            return False
        reason = {"reason": "expired"} if expired else {}
        await add_event(connection, campaign_id, "completed", _ACTOR, **reason)
        return True
