"""Writes what became of sent messages: many results in one statement, each under its fence."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.pipeline.backoff import delay_s
from services.sender.pipeline.breaker import Trip
from services.sender.pipeline.claim import ClaimedMessage
from services.sender.pipeline.outcome import Accepted, Failed, Outcome, Retry, Throttled, Unknown
from shared.db.campaigns import keep_running, pause_campaigns
from shared.db.counters import DELTAS
from shared.db.effects import Met, apply_effects
from shared.domain.campaigns import PauseReason
from shared.whatsapp.errors import Effect

_ACTOR = "sender"

# An accepted result applies to its attempt from `claimed` on, also where a webhook was faster;
# every other result writes only over `claimed` or `unknown`. A late acceptance is worth more than
# what we concluded, as Meta's evidence is, and cancels what would be sent again because nobody knew
# of it. Rows are locked in id order, so that recorder, applier and reclaimer never wait for each
# other in a circle.
_RECORD = text(f"""
WITH result AS MATERIALIZED (
    SELECT * FROM unnest(
        CAST(:ids AS bigint[]), CAST(:attempts AS int[]), CAST(:kinds AS text[]),
        CAST(:wamids AS text[]), CAST(:codes AS int[]), CAST(:reasons AS text[]),
        CAST(:delays AS float8[]), CAST(:concluded AS bool[]), CAST(:details AS text[]),
        CAST(:traces AS text[]), CAST(:tries AS int[])
    ) AS r (id, attempt, kind, wamid, code, reason, delay_s, concluded, details, fbtrace_id, tries)
), old AS MATERIALIZED (
    SELECT id, campaign_id, status, error_code, attempt, spent,
        status < 'accepted' OR status = 'failed' AND concluded AS first_word
    FROM messages
    WHERE id = ANY(CAST(:ids AS bigint[])) ORDER BY id FOR UPDATE
), hit AS MATERIALIZED (
    SELECT result.*, old.campaign_id, old.status AS old_status, old.error_code AS old_code,
        old.first_word, old.attempt > result.attempt AS late,
        CASE result.kind
            WHEN 'accepted' THEN CASE WHEN old.first_word THEN 'accepted' ELSE old.status END
            WHEN 'unknown' THEN 'unknown'
            WHEN 'failed' THEN 'failed'
            WHEN 'retry' THEN CASE
                WHEN old.spent + 1 >= campaigns.max_attempts OR campaigns.state = 'cancelled'
                    OR campaigns.expires_at <= now()
                    OR result.tries <= 1 + least(old.spent, (
                        SELECT count(*) FROM attempts AS before
                        WHERE before.message_id = old.id AND before.attempt < old.attempt
                          AND before.error_code = result.code))
                THEN 'failed'::message_status ELSE 'pending' END
            -- Whoever asked for a live message is told; later it would be a surprise.
            ELSE CASE campaigns.state WHEN 'live' THEN 'failed'::message_status
                ELSE 'pending' END
        END AS new_status
    FROM result
    JOIN old ON old.id = result.id
    JOIN campaigns ON campaigns.id = old.campaign_id
    WHERE CASE
        WHEN old.attempt > result.attempt
            THEN result.kind = 'accepted' AND old.status IN ('pending', 'skipped') AND (
                SELECT outcome FROM attempts AS before
                WHERE before.message_id = result.id AND before.attempt = result.attempt
            ) = 'unknown'
        WHEN old.attempt < result.attempt THEN false
        WHEN result.kind = 'accepted' THEN old.status >= 'claimed'
        ELSE old.status IN ('claimed', 'unknown') END
), changed AS (
    UPDATE messages SET
        status = hit.new_status,
        attempt = messages.attempt + (hit.new_status = 'pending')::int,
        spent = messages.spent
            + (hit.kind IN ('accepted', 'failed', 'retry')
               AND hit.old_status < 'accepted' AND NOT hit.concluded)::int,
        due_at = CASE WHEN hit.new_status = 'pending'
            THEN now() + make_interval(secs => hit.delay_s) END,
        claimed_at = CASE WHEN hit.new_status = 'unknown' THEN messages.claimed_at END,
        accepted_at = CASE WHEN hit.kind = 'accepted' THEN coalesce(messages.accepted_at, now())
            ELSE messages.accepted_at END,
        failed_at = CASE WHEN hit.new_status = 'accepted' THEN NULL
            WHEN hit.new_status = 'failed' AND hit.kind <> 'accepted' THEN now()
            ELSE messages.failed_at END,
        wamid = coalesce(messages.wamid, hit.wamid),
        error_code = CASE WHEN hit.kind = 'accepted' AND hit.first_word THEN NULL
            WHEN hit.kind = 'accepted' THEN messages.error_code ELSE hit.code END,
        reason = CASE WHEN hit.kind = 'accepted' AND NOT hit.first_word THEN messages.reason
            ELSE hit.reason END,
        concluded = CASE WHEN hit.kind = 'accepted' THEN messages.concluded AND NOT hit.first_word
            ELSE hit.new_status = 'failed' AND (hit.concluded OR hit.kind <> 'failed') END
    FROM hit WHERE messages.id = hit.id
    RETURNING messages.id, messages.campaign_id, hit.old_status, hit.old_code,
        messages.status AS new_status, messages.error_code AS new_code
), history AS (
    INSERT INTO attempts AS a
        (message_id, attempt, outcome, error_code, wamid, details, fbtrace_id)
    SELECT result.id, result.attempt, result.kind, result.code, result.wamid,
        coalesce(result.details, result.reason), result.fbtrace_id
    FROM result LEFT JOIN hit ON hit.id = result.id
    WHERE (hit.id IS NOT NULL AND result.kind NOT IN ('accepted', 'returned'))
       OR (coalesce(hit.late, true) AND result.kind = 'accepted')
    ORDER BY result.id
    -- A late acceptance adds its id to what a webhook has said of the attempt meanwhile.
    ON CONFLICT (message_id, attempt) DO UPDATE SET
        outcome = CASE excluded.outcome WHEN 'accepted' THEN a.outcome ELSE excluded.outcome END,
        error_code = coalesce(excluded.error_code, a.error_code),
        wamid = coalesce(a.wamid, excluded.wamid),
        details = coalesce(excluded.details, a.details),
        fbtrace_id = coalesce(excluded.fbtrace_id, a.fbtrace_id)
), {DELTAS}
SELECT id FROM changed
""")  # built from constants


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one claimed message; `trip` where it made its campaign's breaker trip."""

    message: ClaimedMessage
    outcome: Outcome
    trip: Trip | None = None


@dataclass(slots=True)
class _Columns:
    """The results as the arrays that the statement takes."""

    ids: list[int] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    wamids: list[str | None] = field(default_factory=list)
    codes: list[int | None] = field(default_factory=list)
    reasons: list[str | None] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    concluded: list[bool] = field(default_factory=list)
    details: list[str | None] = field(default_factory=list)
    traces: list[str | None] = field(default_factory=list)
    tries: list[int | None] = field(default_factory=list)


async def record(connection: AsyncConnection, results: Sequence[Result]) -> int:
    """Write results of distinct messages; returns how many of them found their row.

    Pauses that a code calls for come first: their locks on campaigns are the stronger ones.
    """
    await apply_effects(connection, [*filter(None, map(_met, results))], _ACTOR)
    for trip in _trips(results):
        reason, actor = PauseReason.BREAKER, PauseReason.BREAKER.value
        await pause_campaigns(connection, [trip.campaign_id], reason, actor, **trip.details())
    waiting = {r.message.campaign_id for r in results if isinstance(r.outcome, Throttled | Retry)}
    if waiting:
        await keep_running(connection, waiting, _ACTOR)
    rows = await connection.execute(_RECORD, _columns(results))
    return len(rows.all())


def _columns(results: Sequence[Result]) -> dict[str, list[object]]:
    columns = _Columns()
    for result in results:
        message, outcome = result.message, result.outcome
        columns.ids.append(message.id)
        columns.attempts.append(message.attempt)
        columns.kinds.append(_kind(outcome))
        columns.wamids.append(outcome.wamid if isinstance(outcome, Accepted) else None)
        columns.codes.append(_code(outcome))
        columns.reasons.append(outcome.note if isinstance(outcome, Accepted) else outcome.reason)
        columns.delays.append(_delay(outcome, message.spent))
        columns.concluded.append(isinstance(outcome, Failed) and outcome.concluded)
        columns.details.append(None if isinstance(outcome, Accepted) else outcome.details)
        columns.traces.append(None if isinstance(outcome, Accepted) else outcome.fbtrace_id)
        columns.tries.append(outcome.tries if isinstance(outcome, Retry) else None)
    return {name: getattr(columns, name) for name in _Columns.__slots__}


def _kind(outcome: Outcome) -> str:
    match outcome:
        case Accepted():
            return "accepted"
        case Throttled():
            # A row that went back unsent leaves no attempt behind.
            return "returned" if outcome.sent_nothing else "throttled"
        case Retry():
            return "retry"
        case Failed():
            return "failed"
        case Unknown():
            return "unknown"


def _delay(outcome: Outcome, spent: int) -> float:
    return delay_s(outcome, spent) if isinstance(outcome, Retry) else 0.0


def _code(outcome: Outcome) -> int | None:
    return None if isinstance(outcome, Accepted) else outcome.code


def _met(result: Result) -> Met | None:
    message = result.message
    match result.outcome:
        case Throttled(code=int() as code, effect=effect, pause=pause) if effect is not Effect.NONE:
            return Met(code, effect, pause, message.campaign_id, message.id)
        case Failed(code=int() as code, effect=effect) if effect is not Effect.NONE:
            return Met(code, effect, None, message.campaign_id, message.id)
        case _:
            return None


def _trips(results: Sequence[Result]) -> list[Trip]:
    """In the order of their campaigns: two batches never wait for each other in a circle."""
    found = [result.trip for result in results if result.trip is not None]
    return sorted(found, key=lambda trip: trip.campaign_id)
