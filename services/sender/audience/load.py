"""Loads the rows of one upload into a campaign, in one transaction that shows all or nothing."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.audience.rows import Batch

# Rows per statement while loading: large enough to be cheap, and far from its time limit.
STEP = 20_000
# Bounds of what may wait for another upload of the same campaign to be loaded.
LOCK_SECONDS = 600.0
STATEMENT_SECONDS = 300.0

# A slow client leaves the transaction idle for as long as a body may be.
_PATIENCE = text("SET LOCAL idle_in_transaction_session_timeout = '180s'")

# The id is given out here, in the order of the file, so that what was not inserted can be told by
# its id, and so that ids, positions and times due agree.
_STAGE = """
CREATE TEMPORARY TABLE staged (
    id bigint PRIMARY KEY DEFAULT nextval('recipients_id_seq'), row_number bigint NOT NULL,
    person text NOT NULL, phone text NOT NULL, external_id text, parameters jsonb NOT NULL,
    metadata jsonb, raw text NOT NULL
) ON COMMIT DROP
"""
_STAGED = ("row_number", "person", "phone", "external_id", "parameters", "metadata", "raw")
_REJECTED = ("upload_id", "row_number", "reason", "raw")

# Two uploads of one campaign that hold the same people in another order would deadlock.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('headrace upload ' || $1::bigint, 0))"
_RANGE = "SELECT min(id), max(id), clock_timestamp() FROM staged"

# Every row is due a microsecond after the one before: a claim's watermark relies on it.
_INSERT = """
WITH added AS (
    INSERT INTO recipients (id, campaign_id, upload_id, person, phone, external_id, parameters,
        metadata)
    SELECT id, $1, $2, person, phone, external_id, parameters, metadata
    FROM staged WHERE id BETWEEN $3 AND $4 ORDER BY id
    ON CONFLICT DO NOTHING RETURNING id
), posted AS (
    INSERT INTO messages (id, campaign_id, due_at)
    SELECT id, $1, $5::timestamptz
           + ($6::bigint + row_number() OVER (ORDER BY id)) * interval '1 microsecond'
    FROM added
)
SELECT count(*) FROM added
"""

_LEFT_OUT = """
WITH left_out AS (
    SELECT row_number, raw, EXISTS (
        SELECT FROM recipients r WHERE r.person = s.person AND r.campaign_id = $1
    ) AS duplicate
    FROM staged s
    WHERE id BETWEEN $3 AND $4 AND NOT EXISTS (SELECT FROM recipients r WHERE r.id = s.id)
), told AS (
    INSERT INTO upload_rejects (upload_id, row_number, reason, raw)
    SELECT $2, row_number,
           CASE WHEN duplicate THEN 'duplicate' ELSE 'external_id is already used' END, raw
    FROM left_out
)
SELECT count(*) FILTER (WHERE duplicate), count(*) FILTER (WHERE NOT duplicate) FROM left_out
"""

_COUNT = """
INSERT INTO counter_deltas (campaign_id, minute, status, error_code, entered, departed)
SELECT $1, date_trunc('minute', now()), 'pending', 0, $2::int, 0 WHERE $2::int > 0
"""


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the rows: `rows` is always the sum of the others."""

    accepted: int = 0
    duplicate: int = 0
    invalid: int = 0

    @property
    def rows(self) -> int:
        return self.accepted + self.duplicate + self.invalid

    def plus(self, accepted: int = 0, duplicate: int = 0, invalid: int = 0) -> "Counts":
        return Counts(self.accepted + accepted, self.duplicate + duplicate, self.invalid + invalid)


class Load:
    """One upload's rows on their way in: `stage` while they arrive, then `insert`.

    COPY and long statements need the driver itself; the transaction is the connection's.
    """

    def __init__(self, driver: asyncpg.Connection, campaign_id: int, upload_id: int) -> None:
        self._driver = driver
        self._campaign = campaign_id
        self._upload = upload_id
        self.counts = Counts()

    @classmethod
    async def begin(cls, connection: AsyncConnection, campaign_id: int, upload_id: int) -> "Load":
        await connection.execute(_PATIENCE)  # also opens the transaction, which the driver joins
        raw: Any = (await connection.get_raw_connection()).driver_connection
        await raw.execute(_STAGE)
        return cls(raw, campaign_id, upload_id)

    async def stage(self, batch: Batch) -> None:
        """Put rows by. Without any, show Postgres that the upload goes on: a row may be slow."""
        if not batch.recipients and not batch.rejects:
            await self._driver.execute("SELECT 1")
        if batch.recipients:
            await self._driver.copy_records_to_table(
                "staged", records=batch.recipients, columns=_STAGED, schema_name="pg_temp"
            )
        if batch.rejects:
            records = [(self._upload, *reject) for reject in batch.rejects]
            await self._driver.copy_records_to_table(
                "upload_rejects", records=records, columns=_REJECTED
            )
            self.counts = self.counts.plus(invalid=len(records))

    async def insert(self) -> None:
        """Wait for other uploads of the campaign, then insert what was staged, step by step."""
        await self._driver.execute(_LOCK, self._campaign, timeout=LOCK_SECONDS)
        first, last, now = await self._one(_RANGE)
        for start in range(first or 0, (last or -1) + 1, STEP):
            await self._step((self._campaign, self._upload, start, start + STEP - 1), now)

    async def _step(self, step: tuple[int, int, int, int], now: datetime) -> None:
        (added,) = await self._one(_INSERT, *step, now, self.counts.accepted)
        duplicate, invalid = await self._one(_LEFT_OUT, *step)
        self.counts = self.counts.plus(added, duplicate, invalid)

    async def _one(self, statement: str, *values: Any) -> Any:
        return await self._driver.fetchrow(statement, *values, timeout=STATEMENT_SECONDS)

    async def count(self) -> None:
        """Book the new rows in the campaign's counters."""
        await self._driver.execute(_COUNT, self._campaign, self.counts.accepted)
