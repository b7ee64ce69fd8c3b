"""When a campaign's breaker trips, and what it counts."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.sender.pipeline.breaker import Breaker, Trip
from services.sender.pipeline.outcome import Accepted, Failed, Outcome, Retry, Throttled, Unknown
from shared.domain.campaigns import BreakerLimit
from shared.whatsapp.errors import ERRORS, OutcomeKind

GOOD = Accepted("w")
BAD = Failed(132000, "meta")
LIMIT = BreakerLimit(0.5, 20)
FAILURES = [
    BAD,
    Failed(199999, "meta"),
    Failed(None, "http_404"),
    Failed(131030, "meta"),
    Retry(131000, "meta"),
    Retry(1, "meta", timedelta(minutes=2)),
    Retry(None, "http_503"),
    Unknown("read_timeout"),
    Unknown("http_502"),
    Unknown("meta", 199998),
]
NO_OUTCOMES = [
    Throttled("meta", 130429),
    Throttled("refused", sent_nothing=True),
    Failed(None, "missing_column", concluded=True),
]


class Campaign:
    """Outcomes of one campaign, each of a message that left when the last one was answered."""

    def __init__(self, limit: BreakerLimit = LIMIT) -> None:
        self.limit = limit
        self.now = 1000.0
        self.breaker = Breaker(self.now)

    def meets(self, outcome: Outcome, *, left: float = 0.5) -> Trip | None:
        self.now += 1.0
        return self.breaker.look(7, self.limit, outcome, self.now - left, self.now)

    def trips(self, *outcomes: Outcome) -> list[Trip]:
        return [trip for outcome in outcomes if (trip := self.meets(outcome)) is not None]


@pytest.mark.parametrize("failure", FAILURES, ids=str)
def test_more_than_its_share_of_failures_trips(failure: Outcome) -> None:
    campaign = Campaign()

    assert campaign.trips(*[failure] * 10) == []
    trip = campaign.meets(failure)
    assert trip is not None
    word = str(failure.code or failure.reason) if not isinstance(failure, Accepted) else ""
    assert trip == Trip(7, LIMIT, 11, {word: 11})


def test_the_trip_tells_what_it_saw() -> None:
    campaign = Campaign()
    (trip,) = campaign.trips(*[GOOD] * 9, *[BAD] * 8, *[Unknown("reset")] * 3)

    assert trip.details() == {
        "failures": 11,
        "outcomes": 20,
        "limit": 0.5,
        "of_last": 20,
        "codes": {"132000": 8, "reset": 3},
    }


@pytest.mark.parametrize("code", [code for code, rule in ERRORS.items() if rule.personal], ids=str)
def test_er_07_what_is_about_one_person_never_trips(code: int) -> None:
    kind = Retry if ERRORS[code].outcome is OutcomeKind.RETRY else Failed

    assert Campaign().trips(*[kind(code, "meta")] * 500) == []


@pytest.mark.parametrize("outcome", NO_OUTCOMES, ids=str)
def test_what_is_no_outcome_changes_nothing(outcome: Outcome) -> None:
    campaign = Campaign()

    assert campaign.trips(*[BAD, outcome, outcome] * 10) == []
    assert campaign.meets(BAD) is not None


def test_old_outcomes_are_forgotten() -> None:
    assert Campaign().trips(*[*[BAD] * 10, *[GOOD] * 10] * 50) == []
    assert Campaign().trips(*[GOOD] * 1000, *[BAD] * 10) == []
    assert len(Campaign().trips(*[GOOD] * 1000, *[BAD] * 11)) == 1


def test_a_trip_begins_a_fresh_window() -> None:
    campaign = Campaign()

    assert len(campaign.trips(*[BAD] * 11)) == 1
    assert campaign.trips(*[BAD] * 10) == []
    assert len(campaign.trips(BAD)) == 1


def test_what_was_on_the_wire_at_the_trip_belongs_to_the_window_before() -> None:
    campaign = Campaign()
    campaign.trips(*[BAD] * 11)

    assert [campaign.meets(BAD, left=1000) for _ in range(200)] == [None] * 200


def test_a_share_of_one_never_trips() -> None:
    assert Campaign(BreakerLimit(1.0, 20)).trips(*[BAD] * 500) == []


def test_a_limit_that_is_changed_holds_at_once() -> None:
    campaign = Campaign(BreakerLimit(0.5, 1000))
    campaign.trips(*[BAD] * 400)
    campaign.limit = LIMIT

    assert campaign.meets(BAD) is not None


@given(st.lists(st.booleans(), max_size=200), st.floats(0.05, 0.95), st.integers(1, 40))
def test_it_trips_where_a_plain_count_says_so(bad: list[bool], share: float, of_last: int) -> None:
    campaign = Campaign(BreakerLimit(share, of_last))
    window: list[bool] = []
    for one in bad:
        window = [*window, one][-of_last:]
        tripped = campaign.meets(BAD if one else GOOD) is not None
        assert tripped == (sum(window) > share * of_last)
        window = [] if tripped else window
