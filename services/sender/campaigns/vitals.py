"""What Redis and the worker processes tell of numbers and campaigns: lost with Redis, no more."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

_WINDOW = 10


@dataclass(frozen=True, slots=True)
class Pause:
    """Why nothing leaves for a number now; its end, if known."""

    reason: str
    ends_at: datetime | None


@dataclass(frozen=True, slots=True)
class NumberVitals:
    """`pace`: what throttling has left of the configured rate, 1 for all of it."""

    pace: float
    sends_last_minute: int
    pause: Pause | None
    token_problem: str | None


@dataclass(frozen=True, slots=True)
class Vitals:
    """What was told just now. `rate`: messages a second of the campaign that was asked for."""

    workers: int
    numbers: Mapping[str, NumberVitals]
    rate: float


def rate_of(sent: Mapping[int, int], now: float) -> float:
    """Messages a second over the last ten whole seconds that every process has told of.

    One that began only within them is measured from its first whole second on.
    """
    end = int(now) - 1
    window = range(end - _WINDOW, end)
    if not _any(sent, range(end - 2 * _WINDOW, end - _WINDOW)):
        first = next((second for second in window if sent.get(second)), end - 1)
        window = range(min(first + 1, end - 1), end)
    return round(total(sent, window) / len(window), 2)


def total(sent: Mapping[int, int], seconds: range) -> int:
    """Messages of these seconds. What was found not to have left counts against a later one."""
    return max(0, sum(sent.get(second, 0) for second in seconds))


def _any(sent: Mapping[int, int], seconds: range) -> bool:
    return any(sent.get(second) for second in seconds)
