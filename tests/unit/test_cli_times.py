"""Times as people read them."""

import pytest

from services.cli.times import duration


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
