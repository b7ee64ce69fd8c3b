"""Whole campaigns through real processes: every message is accounted for, whatever happens."""

import asyncio
import socket
from collections.abc import Callable, Collection, Sequence

from launching import Launch
from waiting import until

from services.cli.comparison import Acceptance, Comparison
from services.cli.evidence import errors_told
from services.cli.processes import ServiceProcess
from services.cli.stack import Stack
from services.cli.trial import Outcome, Trial
from services.cli.weather import EXCUSES, NAMED, stormy
from shared.domain.status import Status

SETTLED_SECONDS = 90
# A busy machine lets a message wait on its way, and those behind it come closer.
JITTER_SECONDS = 0.03
QUICK = {"delay_s": {"sent": 0.1, "delivered": 0.3, "read": 0.5}, "batch": 20, "window_ms": 20}
# Nothing is heard of a message before its killed sender's lease (8 s) is over.
AFTER_THE_LEASE = {**QUICK, "delay_s": {"sent": 15, "delivered": 0.3, "read": 0.5}, "jitter": 0}
CALM = {"latency": {"median_ms": 20, "sigma": 0}, "webhooks": QUICK}
# Many on the wire at any time, and a status for each acceptance.
SLOW = {"latency": {"median_ms": 200, "sigma": 0.3}, "webhooks": QUICK}


def at_least(trial: Trial, accepted: int) -> Callable[[], object]:
    async def look() -> bool:
        counts = (await trial.look())["counts"]
        return sum(counts.get(s, 0) for s in ("accepted", "sent", "delivered", "read")) >= accepted

    return look


async def ids_in(trial: Trial, status: Status) -> set[int]:
    rows = await trial.books.rows(trial.campaign)
    return {row.id for row in rows if row.status is status}


def ids_of(outcome: Outcome, status: Status) -> set[int]:
    return {row.id for row in outcome.rows if row.status is status}


async def ended(trial: Trial, excuses: Collection[int] = ()) -> Outcome:
    """Wait for the end; the API's counts are those of the rows, whatever happened on the way."""
    assert await trial.settle(SETTLED_SECONDS)
    outcome = await trial.compare(excuses)
    assert outcome.counts == outcome.statuses
    return outcome


def shortest_span(ledger: Sequence[Acceptance], count: int) -> float:
    """Seconds that the quickest `count` messages in a row took."""
    times = sorted(item.at for item in ledger)
    return min(last - begin for begin, last in zip(times, times[count - 1 :], strict=False))


async def second_sender(stack: Stack) -> ServiceProcess:
    """From now on the stack's sender is a new one; returns the one before, which runs on."""
    first, stack.sender = stack.sender, stack.start_sender()
    return first


async def test_a_storm_ends_with_every_message_accounted_for(launch: Launch) -> None:
    trial = await launch(600, 200, stormy(3, 600, 200))
    outcome = await ended(trial, EXCUSES)
    assert outcome.comparison == Comparison()
    assert len(outcome.rows) == 600
    told = errors_told(outcome.stats, outcome.ledger, outcome.unclear)
    assert [name for name in NAMED if not told.get(name)] == []
    assert ids_of(outcome, Status.UNKNOWN)


async def test_a_status_before_its_own_reply_counts(launch: Launch) -> None:
    trial = await launch(200, 200, {"webhooks": {**QUICK, "early_share": 1, "batch": 1}})
    outcome = await ended(trial)
    assert outcome.comparison == Comparison()
    assert {row.status for row in outcome.rows} <= {Status.DELIVERED, Status.READ}


async def test_a_killed_sender_loses_and_doubles_nothing(stack: Stack, launch: Launch) -> None:
    first = await second_sender(stack)
    trial = await launch(600, 200, {**SLOW, "webhooks": AFTER_THE_LEASE})
    await until(at_least(trial, 150), 20)
    first.kill()
    in_doubt = await ids_in(trial, Status.CLAIMED)
    assert in_doubt, "nothing was on the wire: the kill proves nothing"
    # Given up by its lease, not sent again, and later settled by what Meta says of it.
    given_up = await until(lambda: ids_in(trial, Status.UNKNOWN), 30)
    outcome = await ended(trial)
    seen = outcome.comparison
    assert given_up - ids_of(outcome, Status.UNKNOWN)
    # What was claimed and had not left may have left, for all that anybody can know.
    assert set(seen.unknown_extra) == ids_of(outcome, Status.UNKNOWN) <= in_doubt
    assert seen == Comparison(unknown_extra=seen.unknown_extra)


async def test_a_killed_ingest_loses_no_status(stack: Stack, launch: Launch) -> None:
    trial = await launch(600, 200, CALM)
    for accepted in (150, 400):
        await until(at_least(trial, accepted), 20)
        port = stack.ingest.port
        stack.ingest.kill()
        stack.ingest = stack.start_ingest(port)
    outcome = await ended(trial)
    assert outcome.comparison == Comparison()
    assert {row.status for row in outcome.rows} <= {Status.DELIVERED, Status.READ}


async def test_two_senders_on_one_number_keep_its_rate(stack: Stack, launch: Launch) -> None:
    first = await second_sender(stack)
    trial = await launch(300, 50, CALM)
    outcome = await ended(trial)
    assert outcome.comparison == Comparison()
    assert shortest_span(outcome.ledger, 51) > 1 - JITTER_SECONDS
    # Well above half of the rate, or the bound would say nothing.
    assert outcome.stats.peak >= 30
    await asyncio.to_thread(first.stop)


async def test_a_stopped_sender_leaves_nothing_in_doubt(stack: Stack, launch: Launch) -> None:
    first = await second_sender(stack)
    trial = await launch(600, 200, SLOW)
    await until(at_least(trial, 150), 20)
    assert await asyncio.to_thread(first.stop) != -9
    outcome = await ended(trial)
    assert outcome.comparison == Comparison()
    assert not ids_of(outcome, Status.UNKNOWN)


async def test_a_request_that_never_ends_does_not_keep_a_stopped_sender_going(
    stack: Stack, launch: Launch
) -> None:
    first = await second_sender(stack)
    trial = await launch(600, 100, SLOW)
    await until(at_least(trial, 50), 20)
    with socket.create_connection(("127.0.0.1", first.port), timeout=5) as connection:
        connection.sendall(
            b"POST /v1/campaigns HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer " + stack.secrets.admin_key.encode() + b"\r\n"
            b"Content-Length: 1000\r\n\r\n{"
        )
        assert await asyncio.to_thread(first.stop, 30) != -9
    outcome = await ended(trial)
    assert outcome.comparison == Comparison()
    assert not ids_of(outcome, Status.UNKNOWN)
