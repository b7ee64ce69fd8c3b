"""How long campaigns take that share a number, held to the way permits are really divided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.sender.campaigns.pace import Work, left_after, seconds_until_sent
from services.sender.pipeline.shares import Shares

WORKS = st.lists(
    st.builds(Work, messages=st.integers(1, 3000), weight=st.integers(1, 9)), min_size=1, max_size=5
)
RATE = 50


def seconds_of(works: list[Work]) -> int:
    """Seconds until the first has nothing left, when permits are divided second by second."""
    left, weights = dict(enumerate(works)), {place: one.weight for place, one in enumerate(works)}
    waiting = {place: int(one.messages) for place, one in left.items()}
    shares, seconds = Shares(), 0
    while waiting[0] > 0:
        seconds += 1
        permits = RATE
        while permits and (due := {p: weights[p] for p, n in waiting.items() if n > 0}):
            parts = shares.divide(permits, due)
            taken = {place: min(part, waiting[place]) for place, part in parts.items()}
            for place, count in taken.items():
                waiting[place] -= count
            permits -= sum(taken.values())
    return seconds


@given(WORKS)
def test_it_is_what_dividing_the_permits_takes(works: list[Work]) -> None:
    expected = seconds_until_sent(works[0], works[1:], RATE)
    assert seconds_of(works) == pytest.approx(expected, abs=2)


def test_alone_it_has_the_whole_rate() -> None:
    assert seconds_until_sent(Work(1000, 3), [], 50) == 20


def test_what_others_have_sent_before_does_not_count() -> None:
    others = [Work(600, 1), Work(400, 5)]
    assert left_after(0, others, 50) == others
    assert left_after(10, others, 50) == [Work(300, 1), Work(200, 5)]
    assert left_after(100, others, 50) == [Work(0, 1), Work(0, 5)]
    assert left_after(10, [], 50) == []
