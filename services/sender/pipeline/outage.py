"""Holds a number while Meta or the way to it is out, so that an outage never burns the audience."""

from services.sender.pipeline.outcome import Accepted, Failed, Outcome, Retry, Throttled, Unknown

_UNREACHABLE_FIRST_S, _UNREACHABLE_CAP_S = 1.0, 60.0
_OUT_FIRST_S, _OUT_CAP_S = 30.0, 900.0
_STREAK = 20
_OUT_CODES = (2, 131016, 133004)


class Outage:
    """Signs of an outage on one number, in this process. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._streak = 0
        self._pauses = 0
        self.held_at = 0.0

    @property
    def probing(self) -> bool:
        """Whether the next message to leave is to be the only one, until it is answered."""
        return self._pauses > 0

    def pause_after(self, outcome: Outcome, left_at: float, now: float) -> float:
        """Seconds to hold the number after this outcome; 0 for none.

        A request that reached nobody pauses a second, doubling to a minute. Twenty signs of a
        broken Meta in a row without an acceptance pause half a minute, doubling to fifteen. What
        left before the last pause began says nothing about the time after it.
        """
        if left_at <= self.held_at or _is_our_own(outcome):
            return 0.0
        if isinstance(outcome, Throttled) and outcome.sent_nothing:
            return self._hold(now, _UNREACHABLE_FIRST_S, _UNREACHABLE_CAP_S)
        if not _is_sign(outcome):
            self._streak = self._pauses = 0
            return 0.0
        self._streak += 1
        if self._streak < _STREAK and not self.probing:
            return 0.0
        return self._hold(now, _OUT_FIRST_S, _OUT_CAP_S)

    def _hold(self, now: float, first: float, cap: float) -> float:
        self.held_at = now
        self._pauses += 1
        return min(cap, first * (1 << min(self._pauses - 1, 16)))


def _is_our_own(outcome: Outcome) -> bool:
    """Decided without asking Meta, so it says nothing about Meta."""
    return isinstance(outcome, Failed) and outcome.concluded


def _is_sign(outcome: Outcome) -> bool:
    match outcome:
        # An error without a code is a proxy's.
        case Unknown() | Failed(code=None):
            return True
        case Retry(code=code):
            return code in _OUT_CODES
        case Accepted() | _:
            return False
