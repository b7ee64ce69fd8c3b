"""How fast a number's campaigns may send, and how long their work takes together."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# The bucket spaces slots by this over the rate, so that no second holds more than the rate.
SPREAD = 1.01


@dataclass(frozen=True, slots=True)
class Work:
    """Messages that wait to be sent, and the weight of their campaign."""

    messages: float
    weight: int


def campaign_rate(rate: int, headroom: float) -> float:
    """Messages a second that the bucket leaves to all campaigns of a number together."""
    part = rate * (1 - headroom)
    return (math.floor(part + 1e-9) if part > 1 else part) / SPREAD


def left_after(seconds: float, works: Sequence[Work], rate: float) -> list[Work]:
    """What is left when they have shared `rate` for so long: of each the same part, about."""
    total = sum(one.messages for one in works)
    part = max(0.0, 1 - seconds * rate / total) if total else 0.0
    return [Work(one.messages * part, one.weight) for one in works]


def seconds_until_sent(own: Work, others: Iterable[Work], rate: float) -> float:
    """How long a campaign takes that shares `rate` with others by weight.

    Until its end each of the others sends its share beside it, or all it has, if that is less.
    """
    beside = sum(min(one.messages, own.messages * one.weight / own.weight) for one in others)
    return (own.messages + beside) / rate
