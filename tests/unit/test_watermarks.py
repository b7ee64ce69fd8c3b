"""Where the next claim starts to look."""

from datetime import UTC, datetime, timedelta

import pytest

from services.sender.pipeline.watermarks import BEGINNING, RESCAN_S, Look, Watermarks

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
    """Watermarks that have just looked from the beginning and found a row due early."""
    assert clock.now
    marks = Watermarks()
    marks.looked([Look(CAMPAIGN, BEGINNING, EARLY)], 0.01)
    return marks


def start(marks: Watermarks) -> datetime:
    return marks.starts([CAMPAIGN])[CAMPAIGN]


def test_the_first_look_is_from_the_beginning(clock: Clock) -> None:
    assert clock.now
    assert start(Watermarks()) == BEGINNING


def test_a_claim_starts_at_what_the_look_has_found(marks: Watermarks) -> None:
    assert marks.of(CAMPAIGN) == EARLY
    assert marks.of(CAMPAIGN + 1) == BEGINNING


def test_the_next_claim_starts_at_the_last_row(marks: Watermarks) -> None:
    marks.advance({CAMPAIGN: LATE})

    assert marks.of(CAMPAIGN) == LATE
    assert start(marks) == LATE


def test_after_some_seconds_a_look_is_from_the_beginning_again(
    marks: Watermarks, clock: Clock
) -> None:
    clock.now += RESCAN_S - 0.1
    assert start(marks) == EARLY
    clock.now += 0.1
    assert start(marks) == BEGINNING
    # A claim never is: it must not walk over what is finished.
    assert marks.of(CAMPAIGN) == EARLY


def test_a_slow_look_puts_the_next_one_off_in_proportion(marks: Watermarks, clock: Clock) -> None:
    marks.looked([Look(CAMPAIGN, BEGINNING, None)], 2.0)

    clock.now += 39.9
    assert start(marks) == EARLY
    clock.now += 0.1
    assert start(marks) == BEGINNING


def test_a_look_from_the_mark_does_not_put_it_off(marks: Watermarks, clock: Clock) -> None:
    clock.now += RESCAN_S - 1
    marks.looked([Look(CAMPAIGN, EARLY, LATE)], 0.01)
    clock.now += 1

    assert start(marks) == BEGINNING


def test_a_look_moves_the_mark_back_to_what_another_process_gave_back(marks: Watermarks) -> None:
    marks.advance({CAMPAIGN: LATE})
    marks.looked([Look(CAMPAIGN, BEGINNING, EARLY)], 0.01)

    assert marks.of(CAMPAIGN) == EARLY


def test_a_look_that_finds_nothing_leaves_the_mark(marks: Watermarks) -> None:
    marks.looked([Look(CAMPAIGN, BEGINNING, None)], 0.01)

    assert marks.of(CAMPAIGN) == EARLY
