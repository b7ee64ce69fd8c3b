"""Exact counts per campaign: deltas written with the rows, folded by a loop, read as one sum."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import TIMESTAMP, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.domain.status import Status

#: A CTE for a statement that moves messages. It reads a CTE `changed` with the columns
#: campaign_id, old_status, old_code, new_status, new_code, one row per message that moved, and
#: books each departure under what the row was and each arrival under what it became.
DELTAS = """
deltas AS (
    INSERT INTO counter_deltas (campaign_id, minute, status, error_code, entered, departed)
    SELECT campaign_id, date_trunc('minute', now()), status, coalesce(code, 0),
           sum(entered), sum(departed)
    FROM (
        SELECT campaign_id, old_status AS status, old_code AS code, 0 AS entered, 1 AS departed
        FROM changed WHERE (old_status, old_code) IS DISTINCT FROM (new_status, new_code)
        UNION ALL
        SELECT campaign_id, new_status, new_code, 1, 0
        FROM changed WHERE (old_status, old_code) IS DISTINCT FROM (new_status, new_code)
    ) AS steps
    GROUP BY 1, 3, 4
)
"""

# Rows are taken in insertion order and skipped when another replica folds them; the sums are
# inserted in key order, so that two folds never wait for each other in a circle.
_FOLD = text("""
WITH taken AS MATERIALIZED (
    DELETE FROM counter_deltas WHERE id IN (
        SELECT id FROM counter_deltas ORDER BY id LIMIT :most FOR UPDATE SKIP LOCKED
    )
    RETURNING campaign_id, minute, status, error_code, entered, departed
), sums AS (
    SELECT campaign_id, minute, status, error_code,
           sum(entered) AS entered, sum(departed) AS departed
    FROM taken GROUP BY 1, 2, 3, 4
), folded AS (
    INSERT INTO campaign_counters AS c
    SELECT campaign_id, minute, status, error_code, entered, departed FROM sums
    ORDER BY 1, 2, 3, 4
    ON CONFLICT (campaign_id, minute, status, error_code) DO UPDATE
    SET entered = c.entered + excluded.entered, departed = c.departed + excluded.departed
)
SELECT count(*) FROM taken
""")

_BOTH = """(
    SELECT campaign_id, minute, status, error_code, entered, departed FROM campaign_counters
    WHERE campaign_id = :campaign
    UNION ALL
    SELECT campaign_id, minute, status, error_code, entered, departed FROM counter_deltas
    WHERE campaign_id = :campaign
) AS both_parts"""

_TOTALS = text(f"""
SELECT status::text, sum(entered - departed)::bigint AS total FROM {_BOTH} GROUP BY status
""")  # built from constants

_PENDING = text("""
SELECT campaign_id, sum(entered - departed)::bigint AS total FROM (
    SELECT campaign_id, entered, departed FROM campaign_counters
    WHERE campaign_id = ANY(CAST(:campaigns AS bigint[])) AND status = 'pending'
    UNION ALL
    SELECT campaign_id, entered, departed FROM counter_deltas
    WHERE campaign_id = ANY(CAST(:campaigns AS bigint[])) AND status = 'pending'
) AS both_parts
GROUP BY campaign_id
""")

_ERRORS = text(f"""
SELECT error_code, sum(entered)::bigint AS met FROM {_BOTH}
WHERE error_code <> 0 AND status IN ('pending', 'unknown', 'failed')
GROUP BY error_code ORDER BY met DESC, error_code
""")  # built from constants

_MINUTES = text(f"""
SELECT minute, jsonb_object_agg(status, entered) AS entered FROM (
    SELECT minute, status::text, sum(entered)::bigint AS entered FROM {_BOTH}
    WHERE minute > :after GROUP BY minute, status HAVING sum(entered) > 0
) AS sums
GROUP BY minute ORDER BY minute LIMIT :limit
""").columns(minute=TIMESTAMP(timezone=True), entered=JSONB)  # built from constants

FOLD_SIZE = 5000


async def fold(connection: AsyncConnection) -> int:
    """Fold up to `FOLD_SIZE` deltas; returns how many there were."""
    return int(await connection.scalar(_FOLD, {"most": FOLD_SIZE}) or 0)


async def totals(connection: AsyncConnection, campaign_id: int) -> dict[Status, int]:
    """Messages per status now, folded and unfolded in one snapshot. Every status is there."""
    rows = await connection.execute(_TOTALS, {"campaign": campaign_id})
    found = {row.status: row.total for row in rows}
    return {status: found.get(status, 0) for status in Status}


async def pending(connection: AsyncConnection, campaign_ids: Iterable[int]) -> dict[int, int]:
    """Messages of each campaign that wait to be sent."""
    campaigns = list(campaign_ids)
    rows = await connection.execute(_PENDING, {"campaigns": campaigns})
    return dict.fromkeys(campaigns, 0) | {row.campaign_id: row.total for row in rows}


async def errors_met(connection: AsyncConnection, campaign_id: int) -> dict[int, int]:
    """How often each of Meta's codes was met by this campaign's messages, retries included."""
    rows = await connection.execute(_ERRORS, {"campaign": campaign_id})
    return {row.error_code: row.met for row in rows}


async def minutes(
    connection: AsyncConnection, campaign_id: int, after: datetime, limit: int
) -> list[tuple[datetime, dict[Status, int]]]:
    """How many messages entered each status, by minute, the oldest first; no minute is empty."""
    values = {"campaign": campaign_id, "after": after, "limit": limit}
    rows = await connection.execute(_MINUTES, values)
    return [(row.minute, {status: row.entered.get(status, 0) for status in Status}) for row in rows]
