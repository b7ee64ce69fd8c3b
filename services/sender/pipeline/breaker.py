"""Watches what becomes of a campaign's messages, so that one that mostly fails stops at once."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.sender.pipeline.outcome import Accepted, Failed, Outcome, Retry, Throttled, Unknown
from shared.domain.campaigns import BreakerLimit
from shared.whatsapp.errors import is_personal


@dataclass(frozen=True, slots=True)
class Trip:
    """A breaker that tripped: what it saw, and what it was allowed to see."""

    campaign_id: int
    limit: BreakerLimit
    outcomes: int
    met: Mapping[str, int]

    def details(self) -> dict[str, Any]:
        """For the campaign's event log."""
        failures = sum(self.met.values())
        return {
            "failures": failures,
            "outcomes": self.outcomes,
            "limit": self.limit.share,
            "of_last": self.limit.of_last,
            "codes": dict(self.met),
        }


class Breaker:
    """The last outcomes of one campaign in this process. Times are monotonic seconds.

    It looks at what a reply says at once; what webhooks say later, the orchestrator looks at.
    """

    def __init__(self, now: float) -> None:
        self._opened_at = now
        self._last: deque[str | None] = deque()
        self._met: Counter[str] = Counter()

    def look(
        self, campaign_id: int, limit: BreakerLimit, outcome: Outcome, left_at: float, now: float
    ) -> Trip | None:
        """Count an outcome; the trip that it causes begins a fresh window.

        What left before the window began belongs to the one before.
        """
        if left_at < self._opened_at or not _counts(outcome):
            return None
        self._add(_failure(outcome), limit.of_last)
        failures = self._met.total()
        if failures <= limit.share * limit.of_last:
            return None
        trip = Trip(campaign_id, limit, len(self._last), dict(self._met.most_common()))
        self._opened_at = now
        self._last.clear()
        self._met.clear()
        return trip

    def _add(self, failure: str | None, most: int) -> None:
        self._last.append(failure)
        if failure is not None:
            self._met[failure] += 1
        while len(self._last) > most:
            self._forget(self._last.popleft())

    def _forget(self, failure: str | None) -> None:
        if failure is None:
            return
        self._met[failure] -= 1
        if not self._met[failure]:
            del self._met[failure]


def _counts(outcome: Outcome) -> bool:
    """Throttled is no outcome yet, and what we refuse ourselves says nothing about the campaign."""
    match outcome:
        case Throttled() | Failed(concluded=True):
            return False
        case _:
            return True


def _failure(outcome: Outcome) -> str | None:
    """A word for a failure that is not about the single person, by code where there is one."""
    match outcome:
        case Failed() | Retry() | Unknown():
            if outcome.code is None:
                return outcome.reason
            return None if is_personal(outcome.code) else str(outcome.code)
        case Accepted() | _:
            return None
