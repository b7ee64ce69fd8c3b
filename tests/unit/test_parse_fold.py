"""Folding a batch: one evidence per message, whatever the order and the repetitions."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.ingest.fold import fold
from services.ingest.parse import StatusEvent
from shared.domain.status import Status
from shared.domain.tokens import Token

START = datetime(2026, 11, 1, tzinfo=UTC)
INSTALLATION = "ab" * 16


def event(
    status: Status, second: int = 0, *, message: int = 1, attempt: int = 1, wamid: str = "w",
    code: int | None = None,
) -> StatusEvent:  # fmt: skip
    return StatusEvent(
        phone_number_id="1",
        wamid=wamid,
        status=status,
        at=START + timedelta(seconds=second),
        received_at=START,
        token=Token(INSTALLATION, message, attempt),
        code=code,
        details=f"code {code}" if code else None,
        raw=b"{}",
    )


LIFE = [
    event(Status.SENT, 1),
    event(Status.SENT, 4),
    event(Status.FAILED, 2, code=131026),
    event(Status.FAILED, 3, code=131049),
    event(Status.DELIVERED, 5),
    event(Status.READ, 6),
]


@given(st.permutations(LIFE * 2))
def test_order_and_repetition_change_nothing(events):
    ((one,),) = fold(events)
    assert one.status is Status.READ
    seconds = {status: (at - START).seconds for status, at in one.times.items()}
    assert seconds == {"sent": 1, "failed": 2, "delivered": 5, "read": 6}
    assert (one.code, one.details, one.later) == (131026, "code 131026", None)


def test_a_message_is_once_in_a_round_and_earlier_attempts_come_first():
    events = [
        event(Status.SENT, message=2),
        event(Status.SENT, attempt=3),
        event(Status.SENT, attempt=1),
        event(Status.SENT, attempt=3, wamid="of a clone"),
        event(Status.READ, attempt=3),
    ]
    rounds = [[(one.message_id, one.attempt, one.wamid) for one in part] for part in fold(events)]
    assert rounds == [[(1, 1, "w"), (2, 1, "w")], [(1, 3, "w")], [(1, 3, "of a clone")]]


@pytest.mark.parametrize(
    ("code", "later"),
    [
        (131049, timedelta(hours=24)),
        (131026, None),
        (131016, timedelta(0)),
        (131042, timedelta(0)),
        (132015, None),
        (135000, None),
        (None, None),
        (999999, None),
    ],
)
def test_only_codes_that_say_later_are_tried_again(code, later):
    ((one,),) = fold([event(Status.FAILED, code=code), event(Status.SENT)])
    assert one.later == later


def test_a_delivered_message_is_not_tried_again():
    ((one,),) = fold([event(Status.FAILED, code=131049), event(Status.DELIVERED)])
    assert one.later is None
    assert one.code == 131049


def test_an_event_without_a_token_belongs_to_no_message():
    assert fold([replace(event(Status.SENT), token=None)]) == []
