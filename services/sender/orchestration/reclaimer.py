"""Takes back what a dead process held: claims older than the lease become unknown."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.db.counters import DELTAS

_MOST = 1000

# The row may have left before its process died, so it is unknown and not pending. What another
# replica or a recorder has locked is being settled there.
_RECLAIM = text(f"""
WITH late AS MATERIALIZED (
    SELECT held.id FROM campaigns CROSS JOIN LATERAL (
        SELECT id FROM messages
        WHERE messages.campaign_id = campaigns.id AND status = 'claimed'
          AND claimed_at < now() - make_interval(secs => :lease_s)
        ORDER BY claimed_at LIMIT :most
    ) AS held
    WHERE campaigns.state IN ('running', 'paused', 'cancelled', 'live')
), old AS MATERIALIZED (
    SELECT id, error_code FROM messages
    WHERE id IN (SELECT id FROM late) AND status = 'claimed'
      AND claimed_at < now() - make_interval(secs => :lease_s)
    ORDER BY id FOR UPDATE SKIP LOCKED
), changed AS (
    UPDATE messages SET status = 'unknown', error_code = NULL, reason = 'lease_expired'
    FROM old WHERE messages.id = old.id
    RETURNING messages.id, messages.campaign_id, messages.attempt,
        'claimed'::message_status AS old_status, old.error_code AS old_code,
        messages.status AS new_status, messages.error_code AS new_code
), history AS (
    INSERT INTO attempts (message_id, attempt, outcome, details)
    SELECT id, attempt, 'unknown', 'lease_expired' FROM changed ORDER BY id
    ON CONFLICT (message_id, attempt) DO NOTHING
), {DELTAS}
SELECT count(*) FROM changed
""")  # built from constants


async def reclaim(engine: AsyncEngine, lease_s: float) -> int:
    """Make unknown what was claimed longer ago than the lease; returns how many rows."""
    async with engine.begin() as connection:
        values = {"lease_s": lease_s, "most": _MOST}
        return int(await connection.scalar(_RECLAIM, values) or 0)
