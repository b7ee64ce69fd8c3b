"""Pauses campaigns that fail for more than single persons, by what webhooks say too.

The sender's own breaker sees each reply at once; a failure that comes by webhook is seen here, in
the counters by minute.
"""

from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from shared.db.campaigns import pause_campaigns
from shared.domain.campaigns import USUAL_BREAKER, PauseReason
from shared.whatsapp.errors import ERRORS

# What an unknown send was, evidence or the sender's breaker tells. An unlisted code is no person's.
_PERSONAL = [code for code, error in ERRORS.items() if error.personal]

# Each message counts once, as what it is now: an acceptance that failed later is a failure and no
# acceptance. The window is the fewest of the newest minutes that hold enough outcomes; it begins
# after the minute in which someone resumed the campaign, or moved what an earlier outage has left:
# a retry takes failures away, and what is settled fails now. Code 0 stands for none.
_FAILING = text("""
WITH running AS (
    SELECT id, coalesce((breaker->>'share')::float8, :share) AS share,
        coalesce((breaker->>'of_last')::int, :of_last) AS of_last,
        greatest(now() - interval '1 hour', (
            SELECT date_trunc('minute', at) + interval '1 minute' FROM campaign_events
            WHERE campaign_id = campaigns.id AND kind IN ('resumed', 'retried', 'settled')
            ORDER BY id DESC LIMIT 1
        )) AS since
    FROM campaigns WHERE state = 'running'
), parts AS (
    -- Campaign by campaign, by the key: there are the counters of all that ever ran.
    SELECT id, share, of_last, folded.* FROM running CROSS JOIN LATERAL (
        SELECT minute, status, error_code, entered - departed AS stayed FROM campaign_counters
        WHERE campaign_id = running.id AND minute >= since
        OFFSET 0
    ) AS folded
    UNION ALL
    SELECT running.id, share, of_last, minute, status, error_code, entered - departed
    FROM running JOIN counter_deltas ON campaign_id = running.id AND minute >= since
), minutes AS (
    SELECT id, share, of_last, minute, sum(stayed) AS outcomes,
        coalesce(sum(stayed) FILTER (
            WHERE status = 'failed' AND error_code <> 0 AND error_code <> ALL(:personal)
        ), 0) AS failures
    FROM parts WHERE status >= 'unknown'
    GROUP BY id, share, of_last, minute
), grown AS (
    SELECT *, sum(outcomes) OVER newest AS outcomes_to, sum(failures) OVER newest AS failures_to
    FROM minutes WINDOW newest AS (PARTITION BY id ORDER BY minute DESC)
)
SELECT DISTINCT ON (id) id, share, of_last, minute, failures_to::int AS failures,
    greatest(outcomes_to, failures_to)::int AS outcomes
FROM grown
WHERE outcomes_to - outcomes < of_last
  AND failures_to > share * greatest(outcomes_to, failures_to, of_last)
ORDER BY id, minute DESC
""")

_CODES = text("""
SELECT error_code, sum(stayed)::int AS met FROM (
    SELECT error_code, entered - departed AS stayed FROM campaign_counters
    WHERE campaign_id = :campaign AND minute >= :minute AND status = 'failed'
    UNION ALL
    SELECT error_code, entered - departed FROM counter_deltas
    WHERE campaign_id = :campaign AND minute >= :minute AND status = 'failed'
) AS parts
WHERE error_code <> 0 AND error_code <> ALL(:personal)
GROUP BY error_code HAVING sum(stayed) > 0 ORDER BY met DESC, error_code LIMIT 10
""")


async def break_failing(engine: AsyncEngine) -> int:
    """Pause every running campaign that fails too much; returns how many."""
    values = {
        "share": USUAL_BREAKER.share,
        "of_last": USUAL_BREAKER.of_last,
        "personal": _PERSONAL,
    }
    async with engine.connect() as connection:
        failing = (await connection.execute(_FAILING, values)).all()
    return sum([await _pause(engine, one) for one in failing])


async def _pause(engine: AsyncEngine, failing: Row[Any]) -> int:
    async with engine.begin() as connection:
        details = {
            "failures": failing.failures,
            "outcomes": failing.outcomes,
            "limit": failing.share,
            "of_last": failing.of_last,
            "codes": await _codes(connection, failing),
        }
        reason = PauseReason.BREAKER
        return len(await pause_campaigns(connection, [failing.id], reason, "breaker", **details))


async def _codes(connection: AsyncConnection, failing: Row[Any]) -> dict[str, int]:
    values = {"campaign": failing.id, "minute": failing.minute, "personal": _PERSONAL}
    found = await connection.execute(_CODES, values)
    return {str(row.error_code): row.met for row in found}
