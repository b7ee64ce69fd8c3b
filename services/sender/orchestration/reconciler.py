"""Settles what nobody knows, after the campaign's window: under `resend` it is sent again."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.db.campaigns import keep_running
from shared.db.counters import DELTAS

_MOST = 1000
_ACTOR = "reconciler"

# Silence proves something only while evidence could have come: a webhook of the number was
# received after the window's end and applied, nothing older waits in the inbox, and ingest has been
# there for a whole window (after an outage Meta takes its time to send again what it could not
# deliver).
_FIND = text("""
SELECT messages.id, messages.campaign_id
FROM campaigns
JOIN webhook_heartbeats AS heard ON heard.phone_number_id = campaigns.phone_number_id
JOIN webhook_heartbeats AS ingest ON ingest.phone_number_id = ''
CROSS JOIN LATERAL (
    SELECT least(now(), heard.received_at, (
        SELECT min(received_at) FROM webhook_pending WHERE purpose = 'apply'
    )) - make_interval(secs => campaigns.unknown_window_s) AS silent_since
) AS bound
CROSS JOIN LATERAL (
    SELECT id, campaign_id FROM messages
    WHERE messages.campaign_id = campaigns.id AND status = 'unknown'
      AND claimed_at < bound.silent_since
    ORDER BY claimed_at LIMIT :most
) AS messages
WHERE campaigns.unknown_policy = 'resend' AND campaigns.state IN ('running', 'paused', 'completed')
  AND ingest.steady_since < bound.silent_since
  AND coalesce(campaigns.expires_at > now(), true)
""")

# The attempt is left behind in the history, where late evidence finds it and cancels the resend.
# A resend spends nothing: Meta has judged nothing.
_RESEND = text(f"""
WITH old AS MATERIALIZED (
    SELECT id, attempt, wamid, error_code FROM messages
    WHERE id = ANY(CAST(:ids AS bigint[])) AND status = 'unknown' AND EXISTS (
        SELECT FROM campaigns
        WHERE campaigns.id = messages.campaign_id AND campaigns.state <> 'cancelled'
          AND coalesce(campaigns.expires_at > now(), true)
    )
    ORDER BY id FOR UPDATE
), changed AS (
    UPDATE messages SET status = 'pending', attempt = messages.attempt + 1, due_at = now(),
        claimed_at = NULL, wamid = NULL, error_code = NULL, reason = 'resend'
    FROM old WHERE messages.id = old.id
    RETURNING messages.id, messages.campaign_id,
        'unknown'::message_status AS old_status, old.error_code AS old_code,
        messages.status AS new_status, messages.error_code AS new_code
), history AS (
    INSERT INTO attempts AS a (message_id, attempt, outcome, wamid, error_code)
    SELECT id, attempt, 'unknown', wamid, error_code FROM old ORDER BY id
    ON CONFLICT (message_id, attempt) DO UPDATE SET outcome = 'unknown'
), {DELTAS}
SELECT count(*) FROM changed
""")  # built from constants


async def reconcile(engine: AsyncEngine) -> int:
    """Make pending again what stayed unknown through its window; returns how many rows."""
    async with engine.begin() as connection:
        found = (await connection.execute(_FIND, {"most": _MOST})).all()
        if not found:
            return 0
        await keep_running(connection, [row.campaign_id for row in found], _ACTOR)
        ids = [row.id for row in found]
        return int(await connection.scalar(_RESEND, {"ids": ids}) or 0)
