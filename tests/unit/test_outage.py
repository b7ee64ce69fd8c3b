"""When an outage of Meta, or of the way to it, holds a number."""

import math

import pytest

from services.sender.pipeline.outage import Outage
from services.sender.pipeline.outcome import Accepted, Failed, Outcome, Retry, Throttled, Unknown

NOT_SENT = Throttled("refused", sent_nothing=True)
LOST = Unknown("read_timeout")
SIGNS = [
    LOST,
    Failed(None, "http_403"),
    Retry(2, "meta"),
    Retry(131016, "meta"),
    Retry(133004, "meta"),
    Retry(None, "http_503"),
]
CALM: list[Outcome] = [
    Accepted("w"),
    Failed(131026, "meta"),
    Retry(131000, "meta"),
    Throttled("meta", 130429),
]


class Line:
    """Outcomes one after the other, each of a message that left just before it came."""

    def __init__(self, longest_s: float = math.inf) -> None:
        self.outage = Outage(longest_s=longest_s)
        self.now = 1000.0

    def meets(self, outcome: Outcome, *, left: float = 0.5) -> float:
        self.now += 1.0
        return self.outage.pause_after(outcome, self.now - left, self.now)


def test_what_reached_nobody_pauses_a_second_doubling_to_a_minute() -> None:
    line = Line()

    assert [line.meets(NOT_SENT) for _ in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert line.outage.probing


def test_the_doubling_never_overflows() -> None:
    line = Line()
    for _ in range(5000):
        assert line.meets(NOT_SENT) <= 60


@pytest.mark.parametrize("sign", SIGNS)
def test_twenty_signs_in_a_row_pause_half_a_minute_doubling(sign: Outcome) -> None:
    line = Line()

    assert [line.meets(sign) for _ in range(19)] == [0] * 19
    assert not line.outage.probing
    assert [line.meets(sign) for _ in range(7)] == [30, 60, 120, 240, 480, 900, 900]
    assert line.outage.probing


@pytest.mark.parametrize("calm", CALM)
def test_any_other_outcome_begins_the_count_anew(calm: Outcome) -> None:
    line = Line()
    for _ in range(19):
        line.meets(LOST)

    assert line.meets(calm) == 0
    assert [line.meets(LOST) for _ in range(19)] == [0] * 19
    assert line.meets(LOST) == 30


@pytest.mark.parametrize("calm", CALM)
def test_a_probe_that_is_answered_ends_the_outage(calm: Outcome) -> None:
    line = Line()
    line.meets(NOT_SENT)
    line.meets(NOT_SENT)

    assert line.meets(calm) == 0
    assert not line.outage.probing
    assert line.meets(NOT_SENT) == 1


def test_what_left_before_the_pause_says_nothing_about_the_time_after_it() -> None:
    line = Line()
    assert line.meets(NOT_SENT) == 1

    for stale in (NOT_SENT, LOST, Accepted("w")):
        assert line.meets(stale, left=100) == 0
    assert line.outage.probing
    assert line.meets(NOT_SENT) == 2


def test_a_probe_that_meets_a_sign_goes_on_pausing() -> None:
    line = Line()
    line.meets(NOT_SENT)

    assert line.meets(LOST) == 60


def test_what_we_refuse_ourselves_says_nothing_about_meta() -> None:
    line = Line()
    own = Failed(None, "missing_column", concluded=True)
    for _ in range(19):
        assert [line.meets(own), line.meets(LOST)] == [0, 0]

    assert line.meets(LOST) == 30
    line.meets(own)
    assert line.outage.probing


def test_a_process_that_stood_still_sees_no_outage_in_what_it_missed() -> None:
    line = Line(longest_s=70)

    assert {line.meets(LOST, left=71) for _ in range(100)} == {0.0}
    assert [line.meets(LOST, left=69) for _ in range(20)][-1] == 30
