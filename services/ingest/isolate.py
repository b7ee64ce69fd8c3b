"""Applies a batch so that one bad event holds up none of its neighbours."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from services.ingest.apply import apply
from services.ingest.fold import fold
from services.ingest.parse import Poison, StatusEvent, webhook_of
from shared.db.faults import is_poison, sqlstate

# What one statement gets: some megabytes of arrays at most.
_SLICE = 5000

_SET_ASIDE = text("""
INSERT INTO webhook_events (received_at, next_try_at, state, error, body)
SELECT received_at, now() + CAST(:wait AS interval), :state, error, body
FROM unnest(CAST(:received_at AS timestamptz[]), CAST(:errors AS text[]), CAST(:bodies AS bytea[]))
    AS e (received_at, error, body)
""")


@dataclass(frozen=True, slots=True)
class Applied:
    """Verdicts by count, and the events that Postgres refused."""

    counts: Counter[str] = field(default_factory=Counter)
    poison: list[Poison] = field(default_factory=list)


async def apply_isolated(connection: AsyncConnection, events: Sequence[StatusEvent]) -> Applied:
    """Apply all that can be applied; what is left is poison, one event each."""
    applied = Applied()
    # By message, so that rows are locked in the order of their ids over all slices and halves.
    ordered = sorted(events, key=_message_id)
    for start in range(0, len(ordered), _SLICE):
        await _try(connection, ordered[start : start + _SLICE], applied)
    return applied


def _message_id(event: StatusEvent) -> int:
    return event.token.message_id if event.token else 0


async def _try(
    connection: AsyncConnection, events: Sequence[StatusEvent], applied: Applied
) -> None:
    try:
        async with connection.begin_nested():
            counts = await _apply_rounds(connection, events)
    except DBAPIError as error:
        if not is_poison(error):
            raise
        await _halve(connection, events, error, applied)
    else:
        applied.counts.update(counts)


async def _apply_rounds(connection: AsyncConnection, events: Sequence[StatusEvent]) -> Counter[str]:
    rounds = fold(events)
    counts = Counter(folded=len(events) - sum(map(len, rounds)))
    for evidence in rounds:
        counts.update(await apply(connection, evidence))
    return counts


async def _halve(
    connection: AsyncConnection,
    events: Sequence[StatusEvent],
    error: DBAPIError,
    applied: Applied,
) -> None:
    if len(events) == 1:
        applied.poison.append(_poison(events[0], error))
        return
    middle = len(events) // 2
    await _try(connection, events[:middle], applied)
    await _try(connection, events[middle:], applied)


def _poison(event: StatusEvent, error: DBAPIError) -> Poison:
    # Not the database's text: it quotes the row.
    body = webhook_of(event.raw, event.phone_number_id)
    return Poison(event.received_at, f"refused by the database: {sqlstate(error)}", body)


async def set_aside_poison(connection: AsyncConnection, poison: Collection[Poison]) -> None:
    """Keep what cannot be applied, with its error, for an operator to look at and replay."""
    await _set_aside(connection, "poison", poison, None)


async def park(
    connection: AsyncConnection, events: Collection[StatusEvent], wait: timedelta
) -> None:
    """Keep failures whose message is not known yet: their HTTP reply may still be on its way."""
    pieces = [
        Poison(e.received_at, "no message with this wamid", webhook_of(e.raw, e.phone_number_id))
        for e in events
    ]
    await _set_aside(connection, "parked", pieces, wait)


async def _set_aside(
    connection: AsyncConnection, state: str, pieces: Collection[Poison], wait: timedelta | None
) -> None:
    if not pieces:
        return
    values = {
        "state": state,
        "wait": wait,
        "received_at": [piece.received_at for piece in pieces],
        "errors": [piece.error.replace("\0", "") for piece in pieces],
        "bodies": [piece.body for piece in pieces],
    }
    await connection.execute(_SET_ASIDE, values)
