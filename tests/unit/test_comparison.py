"""Every disagreement between database and ledger must turn the comparison red."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from services.cli.comparison import Acceptance, Comparison, Row, Unclear, compare
from shared.domain.status import Status
from shared.domain.tokens import Token

INSTALLATION = "0" * 32
UNDELIVERABLE = 131026


def token(message_id: int, attempt: int = 1) -> Token:
    return Token(INSTALLATION, message_id, attempt)


def acceptance(
    message_id: int, *acknowledged: Status, attempt: int = 1, to: str | None = None
) -> Acceptance:
    return Acceptance(
        token=token(message_id, attempt),
        to=to or f"+1202555{message_id:04}",
        wamid=f"wamid.{message_id}.{attempt}",
        at=float(message_id),
        acknowledged=acknowledged,
    )


def row(message_id: int, status: Status, attempt: int = 1) -> Row:
    known = status.rank >= Status.ACCEPTED.rank
    wamid = f"wamid.{message_id}.{attempt}" if known else None
    return Row(message_id, attempt, status, wamid=wamid)


def failed_report(message_id: int, attempt: int = 1) -> Acceptance:
    seen = acceptance(message_id, Status.FAILED, attempt=attempt)
    return replace(seen, failed_reported=UNDELIVERABLE)


# One of each kind that may stand at the end of a clean run.
ROWS = (
    row(1, Status.ACCEPTED),
    row(2, Status.READ),
    row(3, Status.DELIVERED),
    Row(4, 1, Status.FAILED, UNDELIVERABLE, "meta", "wamid.4.1"),
    Row(5, 1, Status.FAILED, UNDELIVERABLE, "meta"),
    Row(6, 1, Status.UNKNOWN, None, "http_502"),
    Row(7, 1, Status.UNKNOWN, None, "read_timeout"),
    row(8, Status.SENT, attempt=3),
    Row(9, 1, Status.SKIPPED, None, "opted_out"),
)
LEDGER = (
    acceptance(1),
    acceptance(2, Status.SENT, Status.READ),
    acceptance(3, Status.DELIVERED),
    failed_report(4),
    replace(acceptance(7), withheld=True),
    acceptance(8, Status.SENT, attempt=3),
)
UNCLEAR = (
    Unclear(token(3), "html_502", accepted=True, withheld=False),
    Unclear(token(6), "html_502", accepted=False, withheld=True),
    Unclear(token(7), "stall", accepted=True, withheld=True),
)
EXCUSES = (UNDELIVERABLE,)


def run(
    rows: Sequence[Row] = ROWS,
    ledger: Sequence[Acceptance] = LEDGER,
    unclear: Sequence[Unclear] = UNCLEAR,
) -> Comparison:
    return compare(rows, ledger, unclear, EXCUSES)


def but(changed: Row) -> tuple[Row, ...]:
    return tuple(changed if each.id == changed.id else each for each in ROWS)


def without(message_id: int) -> tuple[Acceptance, ...]:
    return tuple(item for item in LEDGER if item.token and item.token.message_id != message_id)


def test_a_run_as_it_should_be_is_clean() -> None:
    assert run() == Comparison()
    assert run().clean


@pytest.mark.parametrize("status", [Status.PENDING, Status.CLAIMED, Status.SKIPPED])
def test_a_row_that_never_left_is_lost(status: Status) -> None:
    assert run([*ROWS, row(10, status)]) == Comparison(lost=(10,))


def test_an_acceptance_that_the_ledger_lacks_is_lost() -> None:
    assert run(ledger=without(3)) == Comparison(lost=(3,), wrong_wamid=(3,))


@pytest.mark.parametrize("status", [Status.PENDING, Status.CLAIMED, Status.SKIPPED])
def test_an_acceptance_below_accepted_is_lost(status: Status) -> None:
    assert run(but(row(1, status))) == Comparison(lost=(1,))


def test_a_failure_that_the_scenario_did_not_cause_is_lost() -> None:
    assert run(but(Row(5, 1, Status.FAILED, 131000, "meta"))).lost == (5,)
    assert run(but(Row(5, 1, Status.FAILED, None, "http_400"))).lost == (5,)


def test_a_skip_is_accounted_for_by_its_reason() -> None:
    assert run(but(Row(9, 1, Status.SKIPPED, None, "not_allowed"))).clean
    assert run(but(Row(9, 1, Status.SKIPPED))) == Comparison(lost=(9,))


def test_two_acceptances_of_one_row_are_doubled() -> None:
    planted = [*LEDGER, acceptance(2, attempt=2)]
    assert run(ledger=planted) == Comparison(doubled=(2,))


def test_two_rows_with_one_number_are_doubled() -> None:
    twin = acceptance(10, to=LEDGER[0].to)
    assert run([*ROWS, row(10, Status.ACCEPTED)], [*LEDGER, twin]) == Comparison(doubled=(10,))


def test_a_second_acceptance_after_a_reported_failure_is_no_double() -> None:
    again = Row(4, 2, Status.ACCEPTED, wamid="wamid.4.2")
    assert run(but(again), [*LEDGER, acceptance(4, attempt=2)]).clean


def test_one_reported_failure_excuses_only_one_acceptance() -> None:
    twice = [*LEDGER, acceptance(4, attempt=2), acceptance(4, attempt=3)]
    again = Row(4, 3, Status.ACCEPTED, wamid="wamid.4.3")
    assert run(but(again), twice) == Comparison(doubled=(4,))


@pytest.mark.parametrize(
    "wrong", [Status.ACCEPTED, Status.SENT, Status.FAILED, Status.READ], ids=str
)
def test_a_status_other_than_the_highest_delivered_is_wrong(wrong: Status) -> None:
    assert run(but(row(3, wrong))) == Comparison(wrong_status=(3,))


def test_a_status_that_nobody_delivered_is_wrong() -> None:
    assert run(but(row(1, Status.SENT))) == Comparison(wrong_status=(1,))


def test_of_an_earlier_attempt_only_proof_of_arrival_counts() -> None:
    sent = [*LEDGER, failed_report(1), acceptance(1, attempt=2)]
    assert run(but(row(1, Status.ACCEPTED, attempt=2)), sent[1:]).clean
    read = [*sent[1:-2], acceptance(1, Status.READ), acceptance(1, attempt=2)]
    seen = run(but(row(1, Status.ACCEPTED, attempt=2)), read)
    assert seen == Comparison(doubled=(1,), wrong_status=(1,))


def test_another_messages_wamid_is_seen() -> None:
    assert run(but(replace(ROWS[0], wamid="wamid.2.1"))) == Comparison(wrong_wamid=(1,))
    assert run(but(replace(ROWS[0], wamid=None))) == Comparison(wrong_wamid=(1,))


def test_an_unknown_that_should_be_there_is_missed() -> None:
    settled = Row(7, 1, Status.ACCEPTED, wamid="wamid.7.1")
    assert run(but(settled)) == Comparison(unknown_missing=(7,))


def test_an_unknown_that_should_not_be_there_is_seen() -> None:
    assert run(but(Row(1, 1, Status.UNKNOWN))) == Comparison(unknown_extra=(1,))
    ignored = run(but(Row(3, 1, Status.UNKNOWN)))
    assert ignored == Comparison(unknown_extra=(3,), wrong_status=(3,))


def test_an_acceptance_of_nobody_is_seen() -> None:
    other = replace(acceptance(11), token=None)
    assert run(ledger=[*LEDGER, acceptance(10), other]) == Comparison(strays=(0, 10))


def test_unclear_requests_of_other_campaigns_do_not_count() -> None:
    foreign = Unclear(token(99), "stall", accepted=True, withheld=True)
    assert run(unclear=[*UNCLEAR, foreign]).clean
