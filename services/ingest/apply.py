"""Moves messages by Meta's evidence, in one statement that holds all the rules.

A row's status only rises in the order of the enum, so evidence may come in any order and any
number of times.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.ingest.fold import Evidence
from shared.db.campaigns import keep_running
from shared.db.counters import DELTAS
from shared.db.effects import Met, apply_effects
from shared.domain.status import Status
from shared.whatsapp.errors import Effect, rule_for_webhook

_ACTOR = "webhook"
_BESIDE_THE_MESSAGE = frozenset(Effect) - {Effect.NONE, Effect.SLOW_NUMBER}

# A failure that its attempt's history knows already was applied before: a webhook that Meta repeats
# must not pause again what an operator has resumed since.
_FIRST_MET = text("""
SELECT m.id, m.campaign_id, e.code
FROM unnest(CAST(:ids AS bigint[]), CAST(:attempts AS integer[]),
            CAST(:wamids AS text[]), CAST(:codes AS integer[])) AS e (id, attempt, wamid, code)
JOIN messages m ON m.id = e.id
WHERE (e.attempt < m.attempt
       OR e.attempt = m.attempt AND m.status >= 'claimed' AND coalesce(m.wamid = e.wamid, true))
  AND NOT EXISTS (SELECT FROM attempts a WHERE a.message_id = e.id AND a.attempt = e.attempt
                  AND a.error_code = e.code AND a.evidence IS NOT NULL)
ORDER BY m.id
""")

# Campaigns whose rows may become pending. What is refused here stays refused: attempts only rise,
# and a cancelled campaign stays cancelled.
_REQUEUING = text("""
SELECT DISTINCT m.campaign_id
FROM unnest(CAST(:ids AS bigint[]), CAST(:attempts AS integer[]), CAST(:untouched AS boolean[]))
    AS e (id, attempt, untouched)
JOIN messages m ON m.id = e.id AND m.attempt = e.attempt
JOIN campaigns c ON c.id = m.campaign_id
WHERE c.state NOT IN ('cancelled', 'live') AND m.status < 'failed'
  AND (e.untouched OR m.spent + (m.status < 'accepted')::integer < c.max_attempts)
""")

# On its own, so that the statement after it sees everything that was committed while it waited:
# history that a snapshot misses would turn evidence into a second send.
_LOCK = text("""
SELECT count(*) FROM (
    SELECT FROM messages WHERE id = ANY(CAST(:ids AS bigint[])) ORDER BY id FOR UPDATE
) AS locked
""")

_APPLY = text(f"""
WITH event AS MATERIALIZED (
    SELECT * FROM unnest(
        CAST(:ids AS bigint[]), CAST(:attempts AS integer[]), CAST(:wamids AS text[]),
        CAST(CAST(:statuses AS text[]) AS message_status[]), CAST(:at AS timestamptz[]),
        CAST(:first_at AS timestamptz[]), CAST(:sent_at AS timestamptz[]),
        CAST(:delivered_at AS timestamptz[]), CAST(:read_at AS timestamptz[]),
        CAST(:failed_at AS timestamptz[]), CAST(:codes AS integer[]), CAST(:details AS text[]),
        CAST(:later AS interval[]), CAST(:untouched AS boolean[]), CAST(:tries AS integer[])
    ) AS e (id, attempt, wamid, status, at, first_at, sent_at, delivered_at, read_at, failed_at,
            code, details, later, untouched, tries)
), old AS MATERIALIZED (
    SELECT e.*, m.campaign_id, m.status AS old_status, m.error_code AS old_code,
        m.attempt AS row_attempt, c.max_attempts,
        m.spent + (m.status < 'accepted')::integer AS judged,
        -- An operator's retry begins to count anew, as `spent` does.
        CASE WHEN e.tries IS NOT NULL THEN 1 + least(
            m.spent + (m.status < 'accepted')::integer - 1,
            (SELECT count(*) FROM attempts b WHERE b.message_id = e.id AND b.attempt < e.attempt
                                               AND b.error_code = e.code)) END AS tried,
        a.outcome IS NOT DISTINCT FROM 'unknown' AS was_unknown,
        -- A row that took an earlier attempt's message for its own goes on with that one.
        CASE WHEN e.attempt = m.attempt AND m.status >= 'claimed'
                  AND coalesce(m.wamid = e.wamid, true)
               OR e.attempt < m.attempt AND m.status >= 'accepted'
                  AND coalesce(m.wamid = e.wamid, false)
             THEN 'current'
             WHEN e.attempt < m.attempt THEN 'earlier'
             ELSE 'foreign' END AS place,
        e.status > m.status OR m.status = 'failed' AND m.concluded AS rises
    FROM event e
    JOIN messages m ON m.id = e.id
    LEFT JOIN attempts a
        ON a.message_id = e.id AND a.attempt = e.attempt AND e.attempt < m.attempt
    LEFT JOIN campaigns c
        ON c.id = m.campaign_id AND c.id = ANY(CAST(:requeuing AS bigint[]))
        AND e.later IS NOT NULL AND c.state NOT IN ('cancelled', 'live')
        AND coalesce(c.expires_at > now(), true)
), judged AS MATERIALIZED (
    SELECT *, CASE
        WHEN place = 'foreign' THEN 'foreign'
        WHEN place = 'current' AND attempt = row_attempt AND old_status < 'failed'
             AND status = 'failed' AND max_attempts IS NOT NULL
             AND (untouched OR judged < max_attempts AND coalesce(tried < tries, true))
            THEN 'requeued'
        WHEN place = 'current' THEN CASE WHEN rises THEN 'moved' ELSE 'filled' END
        WHEN rises AND (status >= 'delivered'
                        OR was_unknown AND old_status IN ('pending', 'skipped')) THEN 'moved'
        ELSE 'history' END AS step
    FROM old
), changed AS (
    UPDATE messages AS m SET
        status = CASE step WHEN 'moved' THEN j.status WHEN 'requeued' THEN 'pending'
                      ELSE m.status END,
        -- Without a time of Meta's, the sender's own backoff.
        due_at = CASE step WHEN 'requeued' THEN greatest(now(), j.at + later + CASE
            WHEN later = interval '0' AND NOT untouched
            THEN random() * least(300, 1 << least(m.spent, 16)) * interval '1 second'
            ELSE interval '0' END) END,
        claimed_at = NULL,
        accepted_at = CASE step WHEN 'requeued' THEN NULL
                           ELSE coalesce(m.accepted_at, j.first_at) END,
        sent_at = CASE step WHEN 'requeued' THEN NULL ELSE least(m.sent_at, j.sent_at) END,
        delivered_at = least(m.delivered_at, j.delivered_at),
        read_at = least(m.read_at, j.read_at),
        failed_at = CASE step WHEN 'requeued' THEN NULL ELSE least(m.failed_at, j.failed_at) END,
        attempt = m.attempt + (step = 'requeued')::integer,
        spent = CASE WHEN step = 'requeued' AND untouched
            THEN greatest(0, m.spent - (m.status >= 'accepted')::integer)
            ELSE m.spent + (step <> 'filled' AND m.status < 'accepted'
                            AND (place = 'current' OR was_unknown))::integer END,
        wamid = CASE WHEN step = 'requeued' THEN NULL
                     WHEN place = 'current' THEN coalesce(m.wamid, j.wamid)
                     -- Another attempt is out: the row's wamid is that one's.
                     WHEN m.status IN ('pending', 'skipped') THEN j.wamid
                     ELSE m.wamid END,
        error_code = CASE WHEN step = 'filled' THEN m.error_code
                          WHEN step = 'requeued' OR j.status = 'failed' THEN j.code END,
        reason = CASE WHEN step = 'filled' THEN m.reason
                      WHEN step = 'moved' AND j.status = 'failed' THEN 'meta' END,
        concluded = step = 'filled' AND m.concluded
    FROM judged j
    WHERE m.id = j.id AND (
        step IN ('moved', 'requeued')
        OR step = 'filled' AND (
            m.wamid IS NULL
            OR (least(m.sent_at, j.sent_at), least(m.delivered_at, j.delivered_at),
                least(m.read_at, j.read_at), least(m.failed_at, j.failed_at))
               IS DISTINCT FROM (m.sent_at, m.delivered_at, m.read_at, m.failed_at)))
    RETURNING m.campaign_id, j.old_status, j.old_code, m.status AS new_status,
        m.error_code AS new_code
), {DELTAS}, history AS (
    INSERT INTO attempts AS a
        (message_id, attempt, evidence_at, evidence, error_code, outcome, wamid, details)
    SELECT id, attempt, at, status, code,
        CASE WHEN failed_at IS NULL THEN 'accepted' ELSE 'failed' END, wamid, details
    FROM judged
    WHERE place = 'earlier' OR place = 'current' AND failed_at IS NOT NULL
    ON CONFLICT (message_id, attempt) DO UPDATE SET
        evidence_at = CASE WHEN a.evidence >= excluded.evidence THEN a.evidence_at
                           ELSE excluded.evidence_at END,
        evidence = greatest(a.evidence, excluded.evidence),
        error_code = coalesce(excluded.error_code, a.error_code),
        outcome = CASE excluded.outcome WHEN 'failed' THEN 'failed' ELSE a.outcome END,
        wamid = coalesce(a.wamid, excluded.wamid),
        details = coalesce(excluded.details, a.details)
)
SELECT step, count(*) AS messages FROM judged GROUP BY step
""")  # built from constants


async def apply(connection: AsyncConnection, evidence: Sequence[Evidence]) -> Counter[str]:
    """Apply evidence, at most one per message, in the caller's transaction; counts per verdict.

    Campaigns are locked before messages, messages in the order of their ids.
    """
    await _apply_effects(connection, evidence)
    requeuing = await _keep_running(connection, evidence)
    columns = _columns(evidence)
    await connection.execute(_LOCK, {"ids": columns["ids"]})
    rows = await connection.execute(_APPLY, columns | {"requeuing": requeuing})
    counts = Counter({row.step: row.messages for row in rows})
    counts["foreign"] += len(evidence) - counts.total()
    return counts


async def _apply_effects(connection: AsyncConnection, evidence: Sequence[Evidence]) -> None:
    serious = [one for one in evidence if _is_serious(one)]
    if serious:
        rows = await connection.execute(_FIRST_MET, _keys(serious))
        await apply_effects(connection, [_met(row) for row in rows], _ACTOR)


def _is_serious(one: Evidence) -> bool:
    return one.code is not None and rule_for_webhook(one.code).effect in _BESIDE_THE_MESSAGE


def _met(row: Row[Any]) -> Met:
    rule = rule_for_webhook(row.code)
    return Met(row.code, rule.effect, rule.pause, row.campaign_id, row.id)


async def _keep_running(connection: AsyncConnection, evidence: Sequence[Evidence]) -> list[int]:
    later = [one for one in evidence if one.later is not None]
    if not later:
        return []
    keys = {
        "ids": [one.message_id for one in later],
        "attempts": [one.attempt for one in later],
        "untouched": [one.untouched for one in later],
    }
    campaigns = [row.campaign_id for row in await connection.execute(_REQUEUING, keys)]
    if campaigns:
        await keep_running(connection, campaigns, _ACTOR)
    return campaigns


def _keys(evidence: Sequence[Evidence]) -> dict[str, list[Any]]:
    return {
        "ids": [one.message_id for one in evidence],
        "attempts": [one.attempt for one in evidence],
        "wamids": [one.wamid for one in evidence],
        "codes": [one.code for one in evidence],
    }


def _columns(evidence: Sequence[Evidence]) -> dict[str, list[Any]]:
    """Columns rather than rows: the statement is the same for a batch of any size."""
    return _keys(evidence) | {
        "statuses": [one.status.value for one in evidence],
        "at": [one.times[one.status] for one in evidence],
        "first_at": [min(one.times.values()) for one in evidence],
        "sent_at": [one.times.get(Status.SENT) for one in evidence],
        "delivered_at": [one.times.get(Status.DELIVERED) for one in evidence],
        "read_at": [one.times.get(Status.READ) for one in evidence],
        "failed_at": [one.times.get(Status.FAILED) for one in evidence],
        "details": [one.details for one in evidence],
        "later": [one.later for one in evidence],
        "untouched": [one.untouched for one in evidence],
        "tries": [one.tries for one in evidence],
    }
