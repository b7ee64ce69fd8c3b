"""The pace of a campaign by what left in each second."""

import pytest

from services.sender.campaigns.vitals import rate_of, total
from services.sender.pipeline.pulse import spread

NOW = 1_000_000.4


def steady(begin: int, end: int, rate: int = 40) -> dict[int, int]:
    return dict.fromkeys(range(1_000_000 + begin, 1_000_000 + end), rate)


@pytest.mark.parametrize(
    ("sent", "rate"),
    [
        ({}, 0),
        (steady(-120, 0), 40),
        # The newest second may not have been told by every process.
        (steady(-120, -1) | steady(-1, 0, rate=3), 40),
        # The first second of a start is hardly ever a whole one.
        (steady(-5, -4, rate=7) | steady(-4, 0), 40),
        (steady(-2, 0), 40),
        # It stopped five seconds ago.
        (steady(-120, -6), 20),
        (steady(-120, -12), 0),
        # One message every ten seconds.
        ({999_985: 1, 999_995: 1}, 0.1),
        (steady(-120, -2, rate=0) | {999_998: -1}, 0),
    ],
)
def test_the_rate_is_that_of_the_last_whole_seconds(sent: dict[int, int], rate: float):
    assert rate_of(sent, NOW) == rate


def test_what_did_not_leave_is_taken_off_later():
    assert total({1: 5, 2: -2}, range(1, 3)) == 3
    assert total({1: 5, 2: -2}, range(2, 3)) == 0


@pytest.mark.parametrize(
    ("count", "begin", "end", "parts"),
    [
        (40, 10.0, 11.0, {10: 40, 11: 0}),
        (40, 10.004, 11.006, {10: 40, 11: 0}),
        (40, 10.0, 12.0, {10: 20, 11: 20, 12: 0}),
        (3, 10.5, 12.0, {10: 1, 11: 2, 12: 0}),
        (1, 10.9, 10.95, {10: 1}),
        (-1, 10.0, 11.0, {10: -1, 11: 0}),
        (0, 10.0, 11.0, {10: 0, 11: 0}),
    ],
)
def test_what_left_is_spread_over_its_seconds(count, begin, end, parts):
    assert spread(count, begin, end) == parts
