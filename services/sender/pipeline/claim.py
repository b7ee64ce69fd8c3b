"""Claims as many due rows as there are permits: one statement for all of a number's campaigns."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.db.counters import DELTAS

_MOST_MS = "300"

# `statement_timestamp()` and not `clock_timestamp()` bounds `due_at`: only a stable function can
# bound an index scan. Each campaign's scan starts at its watermark, so that it does not walk over
# the index entries of rows that were claimed before and that an open snapshot keeps from vacuum.
# People who opted out since the upload, or whom this installation may not send to, are skipped by
# the same statement, so that no path leads around it. Who has no phone cannot be found allowed.
_CLAIM = text(f"""
WITH allowed AS MATERIALIZED (
    SELECT asked.campaign_id, asked.most, asked.watermark
    FROM unnest(
        CAST(:campaigns AS bigint[]), CAST(:counts AS int[]), CAST(:watermarks AS timestamptz[])
    ) AS asked (campaign_id, most, watermark)
    JOIN campaigns ON campaigns.id = asked.campaign_id AND campaigns.state = 'running'
        AND coalesce(campaigns.expires_at > statement_timestamp(), true)
    JOIN numbers ON numbers.phone_number_id = campaigns.phone_number_id
        AND (numbers.state = 'active' OR numbers.paused_until <= statement_timestamp())
    WHERE NOT EXISTS (SELECT FROM installation WHERE halted)
), picked AS MATERIALIZED (
    SELECT due.id, due.due_at
    FROM allowed CROSS JOIN LATERAL (
        SELECT id, due_at FROM messages
        WHERE messages.campaign_id = allowed.campaign_id
          AND due_at >= allowed.watermark AND due_at <= statement_timestamp()
        ORDER BY due_at
        LIMIT allowed.most FOR UPDATE SKIP LOCKED
    ) AS due
), changed AS (
    UPDATE messages
    SET due_at = NULL,
        status = CASE WHEN barred.reason IS NULL THEN 'claimed' ELSE 'skipped' END
            ::message_status,
        claimed_at = CASE WHEN barred.reason IS NULL THEN clock_timestamp() END,
        reason = barred.reason
    FROM picked
    JOIN recipients ON recipients.id = picked.id
    LEFT JOIN opt_outs ON opt_outs.person = recipients.person
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN opt_outs.person IS NOT NULL THEN 'opted_out'
            WHEN NOT coalesce(
                (recipients.phone || '.') ^@ ANY (CAST(:allowed AS text[])),
                CAST(:allowed AS text[]) IS NULL
            ) THEN 'not_allowed'
        END AS reason
    ) AS barred
    WHERE messages.id = picked.id AND messages.status = 'pending'
    RETURNING messages.id, messages.campaign_id, messages.attempt, messages.spent,
        'pending'::message_status AS old_status, messages.error_code AS old_code,
        messages.status AS new_status, messages.error_code AS new_code,
        recipients.phone, recipients.parameters, picked.due_at
), {DELTAS}
SELECT id, campaign_id, attempt, spent, new_status = 'claimed' AS claimed, phone, parameters,
    due_at
FROM changed
""")  # built from constants

_TIMEOUT = text("SELECT set_config('statement_timeout', :most, true)")


@dataclass(frozen=True, slots=True)
class Share:
    """How many rows of one campaign to claim, and from which `due_at` on to look."""

    campaign_id: int
    most: int
    watermark: datetime


@dataclass(frozen=True, slots=True)
class ClaimedMessage:
    """A message that this process may send now; `claimed` is monotonic, before the claim."""

    id: int
    campaign_id: int
    attempt: int
    spent: int
    phone: str = field(repr=False)
    parameters: dict[str, Any] = field(repr=False)
    claimed: float


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim took. `taken` counts skipped rows too; `last_due` is the next watermark."""

    messages: list[ClaimedMessage]
    taken: dict[int, int]
    last_due: dict[int, datetime]


async def claim(
    engine: AsyncEngine, shares: Sequence[Share], allowed: Sequence[str] | None
) -> Claim:
    """Claim due rows, at most `most` per share, under a statement timeout of 300 ms.

    `allowed` are the `prefixes` of a list, None for all: everyone else's rows are skipped.
    Rows that another process is claiming are passed over. Nothing comes back for a campaign that
    does not run or has expired, a paused number or a halted installation.
    """
    values = {
        "campaigns": [share.campaign_id for share in shares],
        "counts": [share.most for share in shares],
        "watermarks": [share.watermark for share in shares],
        "allowed": None if allowed is None else list(allowed),
    }
    started = time.monotonic()
    async with engine.begin() as connection:
        await connection.execute(_TIMEOUT, {"most": _MOST_MS})
        rows = (await connection.execute(_CLAIM, values)).all()
    return _read(sorted(rows, key=lambda row: row.due_at), started)


def _read(rows: Sequence[Any], started: float) -> Claim:
    messages = [
        ClaimedMessage(
            row.id, row.campaign_id, row.attempt, row.spent, row.phone, row.parameters, started
        )
        for row in rows
        if row.claimed
    ]
    taken: dict[int, int] = {}
    for row in rows:
        taken[row.campaign_id] = taken.get(row.campaign_id, 0) + 1
    return Claim(messages, taken, {row.campaign_id: row.due_at for row in rows})
