"""Empties cancelled and expired campaigns: pending rows become skipped, in large steps."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.db.counters import DELTAS

_MOST = 5000

_SKIP = text(f"""
WITH found AS MATERIALIZED (
    SELECT waiting.id, CASE campaigns.state WHEN 'cancelled' THEN 'cancelled' ELSE 'expired' END
        AS reason
    FROM campaigns CROSS JOIN LATERAL (
        SELECT id FROM messages
        WHERE messages.campaign_id = campaigns.id AND due_at IS NOT NULL
        ORDER BY due_at LIMIT :most
    ) AS waiting
    WHERE campaigns.state = 'cancelled'
       OR campaigns.state IN ('running', 'paused') AND campaigns.expires_at <= now()
    LIMIT :most
), old AS MATERIALIZED (
    SELECT messages.id, found.reason FROM messages JOIN found ON found.id = messages.id
    WHERE status = 'pending' ORDER BY messages.id FOR UPDATE OF messages SKIP LOCKED
), changed AS (
    UPDATE messages SET status = 'skipped', due_at = NULL, reason = old.reason
    FROM old WHERE messages.id = old.id
    RETURNING messages.campaign_id, 'pending'::message_status AS old_status,
        messages.error_code AS old_code, messages.status AS new_status,
        messages.error_code AS new_code
), {DELTAS}
SELECT count(*) FROM changed
""")  # built from constants


async def skip_pending(engine: AsyncEngine) -> int:
    """Skip up to some thousands of pending rows of such campaigns; returns how many."""
    async with engine.begin() as connection:
        return int(await connection.scalar(_SKIP, {"most": _MOST}) or 0)
