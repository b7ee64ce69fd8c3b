"""Meta's limits to the request: what they admit, held against a slow count of the same thing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.simulator.limits import LastSecond, Pairs, in_episode
from services.simulator.scenario import PairLimit, ThrottleEpisodes

# Quarters of a second are exact in binary, so that "one second ago" is met to the bit.
TIMES = st.lists(st.integers(0, 40), max_size=60).map(sorted)


@given(TIMES)
def test_the_peak_is_that_of_the_fullest_half_open_second(quarters: list[int]) -> None:
    second = LastSecond()
    for quarter in quarters:
        second.add(quarter / 4)
    windows = (sum(start <= at < start + 4 for at in quarters) for start in range(-4, 41))
    assert second.most == max(windows, default=0)


def test_what_is_exactly_a_second_old_is_over() -> None:
    second = LastSecond()
    second.add(10.0)
    assert second.count(10.75) == 1
    assert second.count(11.0) == 0


def test_a_pair_gets_its_burst_and_then_one_message_per_interval() -> None:
    pairs = Pairs(PairLimit(per_s=6, burst=3))
    assert [pairs.admit("n", "a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert not pairs.admit("n", "a", 5.9)
    assert pairs.admit("n", "a", 6.0)
    assert not pairs.admit("n", "a", 6.0)


def test_a_full_burst_comes_back_only_when_the_debt_is_paid() -> None:
    pairs = Pairs(PairLimit(per_s=6, burst=3))
    for _ in range(3):
        pairs.admit("n", "a", 0.0)
    assert [pairs.admit("n", "a", 18.0) for _ in range(4)] == [True, True, True, False]


def test_pairs_do_not_know_each_other() -> None:
    pairs = Pairs(PairLimit(per_s=6, burst=1))
    assert pairs.admit("n", "a", 0.0)
    assert pairs.admit("n", "b", 0.0)
    assert pairs.admit("m", "a", 0.0)
    assert not pairs.admit("n", "a", 0.0)


def test_pairs_that_owe_nothing_are_forgotten_and_debtors_are_not() -> None:
    pairs = Pairs(PairLimit(per_s=6, burst=1))
    pairs.admit("n", "debtor", 99.0)
    for person in range(9_998):
        pairs.admit("n", str(person), 90.0)
    pairs.admit("n", "last", 100.0)
    assert len(pairs._paid_at) == 2
    assert not pairs.admit("n", "debtor", 100.0)


@pytest.mark.parametrize(
    ("since_first", "refuses"),
    [(0, False), (3.9, False), (4.0, True), (4.9, True), (5.0, False), (9.5, True), (10.5, False)],
)
def test_an_episode_is_the_end_of_each_period(since_first: float, *, refuses: bool) -> None:
    assert in_episode(ThrottleEpisodes(every_s=5, for_s=1), since_first) is refuses


def test_without_episodes_there_are_none() -> None:
    assert not in_episode(None, 4.5)
