"""Holds a number while Meta or the way to it is out, so that an outage never burns the audience."""

import math
from dataclasses import dataclass

from services.sender.pipeline.outcome import Accepted, Failed, Outcome, Retry, Throttled, Unknown

_STREAK = 20
_OUT_CODES = (2, 131016, 133004)


@dataclass(frozen=True, slots=True)
class Waits:
    """The first pause and the longest, in seconds: nobody can be reached, or Meta is broken."""

    unreachable: tuple[float, float] = (1.0, 60.0)
    out: tuple[float, float] = (30.0, 900.0)


WAITS = Waits()


class Outage:
    """Signs of an outage on one number, in this process. Times are monotonic seconds.

    A sign that took longer than `longest_s` is one of a process that stood still itself: all that
    it had on the wire then seems lost at once.
    """

    def __init__(self, waits: Waits = WAITS, longest_s: float = math.inf) -> None:
        self._waits = waits
        self._longest_s = longest_s
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
            return self._hold(now, *self._waits.unreachable)
        if not _is_sign(outcome):
            self._streak = self._pauses = 0
            return 0.0
        if now - left_at > self._longest_s:
            return 0.0
        self._streak += 1
        if self._streak < _STREAK and not self.probing:
            return 0.0
        return self._hold(now, *self._waits.out)

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
            # Without a code it is a 503: each row would soon have used up its attempts.
            return code is None or code in _OUT_CODES
        case Accepted() | _:
            return False
