"""How long a refused message waits before its next attempt: through the table, never in memory."""

import random
from datetime import timedelta

from services.sender.pipeline.outcome import Retry

_BASE_S = 1.0
_CAP_S = 300.0
_PAIR_LIMIT = 131056
_PAIR_CAP_S = 1800.0


def delay_s(retry: Retry, spent: int) -> float:
    """Seconds until the next attempt; `spent` counts the judged attempts before this one.

    Exponential with full jitter, so that what failed together does not come back together. A
    code that asks for a time gets at least that; Meta's pair limit grows by four each time.
    """
    if retry.later is None:
        return random.uniform(0, min(_CAP_S, _BASE_S * (1 << min(spent, 16))))
    least = _pair_s(retry.later, spent) if retry.code == _PAIR_LIMIT else _seconds(retry.later)
    return least * random.uniform(1.0, 1.1)


def _pair_s(first: timedelta, spent: int) -> float:
    return min(_PAIR_CAP_S, _seconds(first) * (1 << (2 * min(spent, 8))))


def _seconds(wait: timedelta) -> float:
    return wait.total_seconds()
