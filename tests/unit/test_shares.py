"""How permits are divided among the campaigns of a number."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.sender.pipeline.shares import Shares

WEIGHTS = st.dictionaries(st.integers(1, 30), st.integers(1, 1000), min_size=1)


@given(st.lists(st.tuples(st.integers(1, 500), WEIGHTS), min_size=1, max_size=20))
def test_every_permit_is_given_and_none_twice(rounds: list[tuple[int, dict[int, int]]]) -> None:
    shares = Shares()
    for permits, weights in rounds:
        parts = shares.divide(permits, weights)

        assert sum(parts.values()) == permits
        assert parts.keys() <= weights.keys()
        assert all(part > 0 for part in parts.values())


@pytest.mark.parametrize("permits", [1, 3, 7, 50])
def test_over_time_the_parts_follow_the_weights(permits: int) -> None:
    shares, got = Shares(), Counter[int]()
    weights = {1: 1, 2: 2, 3: 97}
    for _ in range(1000):
        got.update(shares.divide(permits, weights))

    for campaign, weight in weights.items():
        assert abs(got[campaign] - permits * 10 * weight) <= 2 * permits + 2


def test_a_small_campaign_gets_its_turn_with_single_permits() -> None:
    shares = Shares()
    turns = [next(iter(shares.divide(1, {1: 1, 2: 9}))) for _ in range(100)]

    assert 9 <= turns.count(1) <= 11


def test_a_campaign_that_is_not_asked_for_leaves_all_to_the_others() -> None:
    shares = Shares()
    shares.divide(10, {1: 1, 2: 1})

    assert shares.divide(10, {2: 1}) == {2: 10}


def test_absence_earns_nothing() -> None:
    shares = Shares()
    shares.divide(1, {1: 1, 2: 1})
    for _ in range(100):
        shares.divide(1, {2: 1})

    assert shares.divide(10, {1: 1, 2: 1}) == {1: 5, 2: 5}


def test_what_those_that_dropped_out_were_owed_is_not_given_twice() -> None:
    shares = Shares()
    shares.divide(1, {1: 1, 2: 1000, 3: 1000})
    for permits in (1, 2, 3, 1, 50):
        assert sum(shares.divide(permits, {2: 1000, 3: 1000}).values()) == permits
        assert sum(shares.divide(permits, {2: 1000}).values()) == permits
