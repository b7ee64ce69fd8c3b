"""Applies stored webhooks in batches, each in one transaction with its mark."""

import asyncio
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.ingest.group import unpack
from services.ingest.isolate import apply_isolated, park, set_aside_poison
from services.ingest.metrics import APPLY_SECONDS, APPLY_SIZE, EVENTS, INBOX_DEPTH, LAG_SECONDS
from services.ingest.parse import Poison, StatusEvent, parse
from services.ingest.resolve import resolve
from shared.domain.status import Status

# Under load a group holds some dozens of webhooks, so a batch holds a thousand or so; the largest
# groups are 2 MiB, so it never takes more than some 100 MiB.
GROUPS = 32
PARKED_WAIT = timedelta(seconds=15)

_TAKE = text("""
WITH picked AS MATERIALIZED (
    SELECT purpose, group_id, received_at FROM webhook_pending
    WHERE purpose = 'apply' ORDER BY group_id LIMIT :most FOR UPDATE SKIP LOCKED
), taken AS (
    DELETE FROM webhook_pending p USING picked
    WHERE p.purpose = picked.purpose AND p.group_id = picked.group_id
)
SELECT g.id, g.received_at, g.bodies FROM picked
JOIN webhook_groups g ON g.id = picked.group_id AND g.received_at = picked.received_at
ORDER BY g.id
""")

# Once a second at most: two appliers of one number would wait for each other at this row.
_HEARTBEAT = text("""
INSERT INTO webhook_heartbeats AS h (phone_number_id, received_at)
SELECT number, received_at
FROM unnest(CAST(:numbers AS text[]), CAST(:received_at AS timestamptz[]))
    AS e (number, received_at)
WHERE NOT EXISTS (SELECT FROM webhook_heartbeats o WHERE o.phone_number_id = e.number
                  AND o.received_at > e.received_at - interval '1 second')
ORDER BY number
ON CONFLICT (phone_number_id) DO UPDATE
SET received_at = greatest(h.received_at, excluded.received_at)
""")

# Ingest's own: a gap means that it, or the database, was away, and that Meta has old webhooks to
# send again. While it cannot apply, nothing older than its inbox is settled anyway.
_BEAT = text("""
INSERT INTO webhook_heartbeats AS h (phone_number_id, received_at, steady_since)
VALUES ('', now(), now())
ON CONFLICT (phone_number_id) DO UPDATE SET received_at = now(),
    steady_since = CASE WHEN h.received_at < now() - interval '1 minute'
                        THEN now() ELSE h.steady_since END
""")

_DEPTH = text("""
SELECT count(*) AS groups, coalesce(extract(epoch FROM now() - min(received_at)), 0) AS age
FROM webhook_pending WHERE purpose = 'apply'
""")


@dataclass(slots=True)
class Batch:
    """What a batch of groups holds, sorted by what is to be done with it."""

    ours: list[StatusEvent] = field(default_factory=list)
    orphans: list[StatusEvent] = field(default_factory=list)
    poison: list[Poison] = field(default_factory=list)
    heartbeats: dict[str, datetime] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, body: bytes, received_at: datetime, installation: str) -> None:
        parsed = parse(body, received_at)
        self.poison += parsed.poison
        self.counts.update(parsed.others)
        for number in parsed.numbers:
            self.heartbeats[number] = max(received_at, self.heartbeats.get(number, received_at))
        for event in parsed.events:
            self._sort(event, installation)

    def _sort(self, event: StatusEvent, installation: str) -> None:
        if event.token and event.token.installation == installation:
            self.ours.append(event)
        elif event.token is None and event.status is Status.FAILED:
            # Meta leaves the token out of some failures.
            self.orphans.append(event)
        else:
            self.counts["foreign"] += 1


async def apply_once(engine: AsyncEngine, installation: str) -> bool:
    """Apply one batch of groups; says whether there is more. Any number may run side by side."""
    started = time.perf_counter()
    async with engine.begin() as connection:
        groups = (await connection.execute(_TAKE, {"most": GROUPS})).all()
        if not groups:
            return False
        batch = await _read(groups, installation)
        await _apply(connection, batch, installation)
    APPLY_SECONDS.observe(time.perf_counter() - started)
    APPLY_SIZE.observe(len(batch.ours))
    count_events(batch.counts)
    return len(groups) == GROUPS


async def measure_once(engine: AsyncEngine) -> bool:
    """Export how much waits, and for how long; leave a sign of life."""
    async with engine.begin() as connection:
        await connection.execute(_BEAT)
        row = (await connection.execute(_DEPTH)).one()
    INBOX_DEPTH.set(row.groups)
    LAG_SECONDS.set(float(row.age))
    return False


def count_events(counts: Mapping[str, int]) -> None:
    for result, count in counts.items():
        EVENTS.labels(result).inc(count)


async def _read(groups: Sequence[Row[Any]], installation: str) -> Batch:
    batch = Batch()
    for group in groups:
        try:
            webhooks = unpack(group.bodies)
        except (zlib.error, msgspec.MsgspecError):
            batch.poison.append(Poison(group.received_at, "not a group", group.bodies))
            continue
        for webhook in webhooks:
            # A clock of ours that is ahead must not make a number look alive for longer.
            received_at = min(webhook.received_at, group.received_at)
            batch.add(webhook.body, received_at, installation)
        # A group takes some milliseconds, and webhooks are waiting for their answer.
        await asyncio.sleep(0)
    return batch


async def _apply(connection: AsyncConnection, batch: Batch, installation: str) -> None:
    known, unknown = await resolve(connection, batch.orphans, installation)
    applied = await apply_isolated(connection, batch.ours + known)
    batch.poison += applied.poison
    batch.counts.update(applied.counts + Counter(parked=len(unknown), poison=len(batch.poison)))
    await park(connection, unknown, PARKED_WAIT)
    await set_aside_poison(connection, batch.poison)
    await _beat(connection, batch.heartbeats)


async def _beat(connection: AsyncConnection, heartbeats: Mapping[str, datetime]) -> None:
    if heartbeats:
        values = {"numbers": list(heartbeats), "received_at": list(heartbeats.values())}
        await connection.execute(_HEARTBEAT, values)
