"""Deletes what has been kept long enough, in small steps."""

import structlog
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.metrics import PRUNED
from shared.db.faults import LOCK_NOT_AVAILABLE, sqlstate
from shared.db.partitions import delete_rest, drop_oldest_day

log = structlog.get_logger()

_MOST = 2000

# A repeat within 24 hours gets its first answer; one that comes later begins anew anyway.
_KEYS = text("""
WITH old AS MATERIALIZED (
    SELECT api_key_id, key FROM idempotency_keys WHERE created_at < now() - interval '24 hours'
    ORDER BY created_at LIMIT :most FOR UPDATE SKIP LOCKED
)
DELETE FROM idempotency_keys AS k USING old WHERE k.api_key_id = old.api_key_id AND k.key = old.key
""")

# The first old ones are at the front. What is parked is still being tried.
_EVENTS = text("""
WITH first AS MATERIALIZED (SELECT id FROM webhook_events ORDER BY id LIMIT :most),
old AS MATERIALIZED (
    SELECT e.id FROM webhook_events AS e JOIN first USING (id)
    WHERE state <> 'parked' AND received_at < now() - make_interval(days => :webhooks_days)
    FOR UPDATE OF e SKIP LOCKED
)
DELETE FROM webhook_events USING old WHERE webhook_events.id = old.id
""")

_REJECTS = text("""
WITH old AS MATERIALIZED (
    SELECT rejected.upload_id, rejected.row_number
    FROM campaigns JOIN uploads ON uploads.campaign_id = campaigns.id
    CROSS JOIN LATERAL (
        SELECT upload_id, row_number FROM upload_rejects
        WHERE upload_rejects.upload_id = uploads.id LIMIT :most FOR UPDATE SKIP LOCKED
    ) AS rejected
    WHERE campaigns.ended_at < now() - make_interval(days => :rejects_days)
    LIMIT :most
)
DELETE FROM upload_rejects AS r USING old
WHERE r.upload_id = old.upload_id AND r.row_number = old.row_number
""")

_BY_KIND = {"idempotency_keys": _KEYS, "webhook_events": _EVENTS, "upload_rejects": _REJECTS}


async def prune(engine: AsyncEngine, webhooks_days: int, rejects_days: int) -> int:
    """Delete up to some thousands of old rows of each kind; returns how many."""
    days = {"webhooks_days": webhooks_days, "rejects_days": rejects_days}
    pruned = [await _delete(engine, kind, days) for kind in _BY_KIND]
    async with engine.begin() as connection:
        rest = await delete_rest(connection, webhooks_days, _MOST)
    PRUNED.labels("webhooks").inc(rest)
    return sum(pruned) + rest


async def drop_old_day(engine: AsyncEngine, webhooks_days: int) -> int:
    """Drop one old day of webhooks; returns how many were dropped."""
    try:
        async with engine.begin() as connection:
            name = await drop_oldest_day(connection, webhooks_days)
    except DBAPIError as error:
        if sqlstate(error) != LOCK_NOT_AVAILABLE:
            raise
        log.info("webhook_day_in_use")
        return 0
    if name is None:
        return 0
    PRUNED.labels("webhook_days").inc()
    log.info("webhook_day_dropped", partition=name)
    return 1


async def _delete(engine: AsyncEngine, kind: str, days: dict[str, int]) -> int:
    async with engine.begin() as connection:
        deleted = await connection.execute(_BY_KIND[kind], days | {"most": _MOST})
    PRUNED.labels(kind).inc(deleted.rowcount)
    return deleted.rowcount
