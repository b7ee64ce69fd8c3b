"""Empties cancelled campaigns: their pending rows become skipped, some thousands at a time."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.db.counters import DELTAS

_MOST = 5000

_SKIP = text(f"""
WITH found AS MATERIALIZED (
    SELECT waiting.id FROM campaigns CROSS JOIN LATERAL (
        SELECT id FROM messages
        WHERE messages.campaign_id = campaigns.id AND due_at IS NOT NULL
        ORDER BY due_at LIMIT :most
    ) AS waiting
    WHERE campaigns.state = 'cancelled' LIMIT :most
), old AS MATERIALIZED (
    SELECT id FROM messages WHERE id IN (SELECT id FROM found) AND status = 'pending'
    ORDER BY id FOR UPDATE SKIP LOCKED
), changed AS (
    UPDATE messages SET status = 'skipped', due_at = NULL, reason = 'cancelled'
    FROM old WHERE messages.id = old.id
    RETURNING messages.campaign_id, 'pending'::message_status AS old_status,
        messages.error_code AS old_code, messages.status AS new_status,
        messages.error_code AS new_code
), {DELTAS}
SELECT count(*) FROM changed
""")  # built from constants


async def empty_cancelled(engine: AsyncEngine) -> int:
    """Skip up to some thousands of pending rows of cancelled campaigns; returns how many."""
    async with engine.begin() as connection:
        return int(await connection.scalar(_SKIP, {"most": _MOST}) or 0)
