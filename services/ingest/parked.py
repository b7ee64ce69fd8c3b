"""Tries parked failures again, until their message is known or it is another tool's."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.ingest.inbox import PARKED_WAIT, Batch, count_events
from services.ingest.isolate import apply_isolated, set_aside_poison
from services.ingest.resolve import resolve

# Far longer than any HTTP reply takes to be recorded.
PATIENCE = timedelta(minutes=10)
_MOST = 500

_DUE = text("""
SELECT id, received_at, body FROM webhook_events
WHERE state = 'parked' AND next_try_at <= now()
ORDER BY next_try_at, id LIMIT :most FOR UPDATE SKIP LOCKED
""")

_DELETE = text("DELETE FROM webhook_events WHERE id = ANY(CAST(:ids AS bigint[]))")

_WAIT_ON = text("""
UPDATE webhook_events SET
    state = CASE WHEN received_at > now() - CAST(:patience AS interval)
                 THEN 'parked' ELSE 'foreign' END,
    next_try_at = CASE WHEN received_at > now() - CAST(:patience AS interval)
                       THEN now() + CAST(:wait AS interval) END
WHERE id = ANY(CAST(:ids AS bigint[]))
""")


async def retry_parked_once(engine: AsyncEngine, installation: str) -> bool:
    """Apply what is due and known by now; says whether there is more."""
    async with engine.begin() as connection:
        rows = (await connection.execute(_DUE, {"most": _MOST})).all()
        if rows:
            await _retry(connection, rows, installation)
    return len(rows) == _MOST


async def _retry(connection: AsyncConnection, rows: Sequence[Row[Any]], installation: str) -> None:
    batches = {row.id: _read(row, installation) for row in rows}
    orphans = [event for batch in batches.values() for event in batch.orphans]
    known, unknown = await resolve(connection, orphans, installation)
    ours = [event for batch in batches.values() for event in batch.ours]
    applied = await apply_isolated(connection, ours + known)
    again = [piece for batch in batches.values() for piece in batch.poison]
    await set_aside_poison(connection, applied.poison + again)
    missing = {event.wamid for event in unknown}
    waiting = [id_ for id_, batch in batches.items() if _waits(batch, missing)]
    await connection.execute(_DELETE, {"ids": sorted(set(batches) - set(waiting))})
    values = {"ids": waiting, "patience": PATIENCE, "wait": PARKED_WAIT}
    await connection.execute(_WAIT_ON, values)
    count_events(applied.counts)


def _read(row: Row[Any], installation: str) -> Batch:
    batch = Batch()
    batch.add(row.body, row.received_at, installation)
    return batch


def _waits(batch: Batch, missing: set[str]) -> bool:
    return any(event.wamid in missing for event in batch.orphans)
