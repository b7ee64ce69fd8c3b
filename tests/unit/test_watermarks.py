"""Where the next claim starts to look."""

from datetime import UTC, datetime, timedelta

import pytest

from services.sender.pipeline.claim import BEGINNING, Share
from services.sender.pipeline.watermarks import RESCAN_S, Watermarks

EARLY = datetime(2026, 1, 1, tzinfo=UTC)
LATE = EARLY + timedelta(hours=1)
CAMPAIGN = 7


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("services.sender.pipeline.watermarks.time", clock)
    return clock


@pytest.fixture
def marks(clock: Clock) -> Watermarks:
    """Watermarks that have just looked from the beginning and taken a row due late."""
    assert clock.now
    marks = Watermarks()
    marks.advance(share(BEGINNING), LATE, full=True)
    return marks


def share(watermark: datetime) -> Share:
    return Share(CAMPAIGN, 10, watermark)


def test_the_first_look_is_from_the_beginning() -> None:
    assert Watermarks().of(CAMPAIGN) == BEGINNING


def test_the_next_starts_at_the_last_row(marks: Watermarks) -> None:
    assert marks.of(CAMPAIGN) == LATE
    assert marks.of(CAMPAIGN + 1) == BEGINNING


def test_after_some_seconds_it_is_from_the_beginning_again(marks: Watermarks, clock: Clock) -> None:
    clock.now += RESCAN_S - 0.1
    assert marks.of(CAMPAIGN) == LATE
    clock.now += 0.1
    assert marks.of(CAMPAIGN) == BEGINNING


@pytest.mark.parametrize("full", [True, False])
def test_a_look_from_the_beginning_puts_the_next_one_off(
    marks: Watermarks, clock: Clock, *, full: bool
) -> None:
    clock.now += RESCAN_S
    marks.advance(share(marks.of(CAMPAIGN)), LATE, full=full)

    assert marks.of(CAMPAIGN) == LATE


def test_a_claim_from_the_mark_does_not_put_it_off(marks: Watermarks, clock: Clock) -> None:
    clock.now += RESCAN_S - 1
    marks.advance(share(LATE), LATE, full=True)
    clock.now += 1

    assert marks.of(CAMPAIGN) == BEGINNING


def test_a_full_claim_below_the_mark_moves_it_back(marks: Watermarks) -> None:
    marks.advance(share(BEGINNING), EARLY, full=True)

    assert marks.of(CAMPAIGN) == EARLY


def test_a_claim_that_was_not_full_leaves_nothing_below_the_mark(marks: Watermarks) -> None:
    marks.advance(share(BEGINNING), EARLY, full=False)

    assert marks.of(CAMPAIGN) == LATE


def test_an_empty_claim_teaches_nothing_but_that_it_looked(marks: Watermarks, clock: Clock) -> None:
    clock.now += RESCAN_S
    marks.advance(share(BEGINNING), None, full=False)

    assert marks.of(CAMPAIGN) == LATE


def test_a_probe_from_the_beginning_counts_as_a_look(marks: Watermarks, clock: Clock) -> None:
    clock.now += RESCAN_S
    marks.looked(CAMPAIGN, BEGINNING)

    assert marks.of(CAMPAIGN) == LATE


def test_a_probe_from_the_mark_does_not(marks: Watermarks, clock: Clock) -> None:
    """Also where the time for the next look has come while it ran."""
    clock.now += RESCAN_S
    marks.looked(CAMPAIGN, LATE)

    assert marks.of(CAMPAIGN) == BEGINNING
