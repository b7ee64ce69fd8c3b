"""Times as people read them."""

import time

import pytest

from services.cli.times import duration, local


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (-5, "0 s"),
        (0.6, "1 s"),
        (59, "59 s"),
        (60, "1 min"),
        (156, "2 min 36 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (3661, "1 h 1 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_the_two_largest_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_time_says_whose_clock_it_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "CET-1")
    time.tzset()
    try:
        assert local("2027-05-03T08:00:00.25Z") == "2027-05-03 09:00:00 CET"
    finally:
        monkeypatch.undo()
        time.tzset()
