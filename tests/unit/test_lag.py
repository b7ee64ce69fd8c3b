"""How a worker that was late catches up without putting too many messages into one second."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.sender.pipeline.lag import LATE_S, MOST_LAG_S, Lag

RATE = 50
SPACING = 1.01 / RATE
SLOTS = range(4 * RATE)


def leave(stalls: list[tuple[int, float]]) -> list[float]:
    """When messages leave whose loop stalls before some slots, for some time."""
    lag, times, now, stalled = Lag(), [], 0.0, dict(stalls)
    for number in SLOTS:
        slot = 10 + number * SPACING
        now = max(now, slot + lag.at(slot)) + stalled.get(number, 0.0)
        if lag.grow(slot, now) <= LATE_S:
            times.append(now)
    return times


@example([(0, LATE_S - 1e-5)])
@given(st.lists(st.tuples(st.sampled_from(SLOTS), st.floats(0, 0.1)), max_size=20))
def test_no_stall_puts_more_than_the_rate_into_a_second(stalls: list[tuple[int, float]]) -> None:
    times = leave(stalls)

    for first, later in zip(times, times[RATE:], strict=False):
        assert later - first > 1.0


def test_without_stalls_every_message_leaves_at_its_slot() -> None:
    assert leave([]) == [10 + number * SPACING for number in SLOTS]


def test_a_lag_rises_at_once_and_wears_off() -> None:
    lag = Lag()

    assert lag.grow(100.0, 100.015) == pytest.approx(0.015)

    assert lag.at(100.0) == pytest.approx(0.015)
    assert 0 < lag.at(101.0) < 0.015
    assert lag.at(110.0) == 0.0


def test_a_message_on_time_does_not_end_the_lag() -> None:
    lag = Lag()
    lag.grow(100.0, 100.015)
    worn = lag.at(100.1)
    lag.grow(100.1, 100.1)

    assert lag.at(100.1) == pytest.approx(worn)


def test_no_lag_is_greater_than_the_greatest() -> None:
    lag = Lag()
    lag.grow(100.0, 107.0)

    assert lag.at(100.0) == MOST_LAG_S < LATE_S
