"""The number's token bucket in Redis: books the next free slots, shared by every process."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from redis.asyncio import Redis

_SCRIPT = Path(__file__).with_name("bucket.lua").read_text(encoding="utf-8")
_SAMPLES = 64
_DRIFT_S = 0.001


@dataclass(frozen=True, slots=True)
class Slots:
    """Booked times at which one message each may leave.

    `first` is on this process' monotonic clock; `redis_first` is the same moment in Redis' time.
    Seconds. With a `count` of 0 nothing was booked: ask again after `wait`.
    """

    count: int
    wait: float
    first: float
    redis_first: float
    spacing: float
    pace: float

    def at(self, index: int) -> float:
        """Monotonic time of one slot."""
        return self.first + index * self.spacing

    def redis_at(self, index: int) -> float:
        """The same slot in Redis' time."""
        return self.redis_first + index * self.spacing


@dataclass(frozen=True, slots=True)
class State:
    """What a bucket is at: its share of the configured rate, and a pause of so many seconds more.

    `throttled`: it was Meta's 130429 that paused it, and not an outage.
    """

    pace: float
    paused_s: float
    throttled: bool


class Clocks:
    """Difference between Redis' clock and ours, by the exchange that took the least time."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)

    def add(self, asked: float, answered: float, redis_now: float) -> float:
        """Take a sample; returns what to subtract from Redis' time to get ours.

        A sample is right within half of the time it took. One that contradicts the best so far
        means that a clock was set: what was learnt before is void.
        """
        took, offset = answered - asked, redis_now - (asked + answered) / 2
        best = min(self._samples, default=(took, offset))
        if abs(offset - best[1]) > (took + best[0]) / 2 + _DRIFT_S:
            self._samples.clear()
        self._samples.append((took, offset))
        return min(self._samples)[1]


class Bucket:
    """One business number's permits. Raises `redis.RedisError` when Redis is away."""

    def __init__(self, redis: Redis, phone_number_id: str) -> None:
        self._script = redis.register_script(_SCRIPT)
        self._key = _key(phone_number_id)
        self._live_key = f"{self._key}:live"
        self._clocks = Clocks()

    async def book(self, count: int, rate: float, headroom: float) -> Slots:
        """Book the campaigns' next `count` slots at (1 - headroom) x rate, or none of them."""
        return await self._slots("book", count, rate, headroom)

    async def live(self, rate: float, headroom: float, most_wait: float) -> Slots:
        """Book one slot for a live message, at most `most_wait` seconds away.

        Now, while this second's share for live messages lasts, else the campaigns' next one.
        """
        return await self._slots("live", 1, rate, headroom, most_wait)

    async def throttle(self, redis_slot: float) -> bool:
        """Meta said 130429 to the message of this slot: pause a second and lower the pace.

        False when the pace was already cut after that message left.
        """
        answer = await self._call("throttle", redis_slot)
        return answer[1] == 1

    async def pause(self, seconds: float, *, throttled: bool = False) -> None:
        """Book nothing for this number for so long; `throttled` when it is Meta who asks for it."""
        await self._call("pause", seconds, float(throttled))

    async def _slots(self, operation: str, *numbers: float) -> Slots:
        asked = time.monotonic()
        redis_now, count, ahead, spacing, pace = await self._call(operation, *numbers)
        offset = self._clocks.add(asked, time.monotonic(), redis_now)
        first = redis_now + ahead
        wait = 0.0 if count else ahead
        return Slots(int(count), wait, first - offset, first, spacing, pace)

    async def _call(self, operation: str, *numbers: float) -> list[float]:
        arguments = [operation, *(repr(number) for number in numbers)]
        answer = await self._script(keys=[self._key, self._live_key], args=arguments)
        return [float(part) for part in cast("list[bytes]", answer)]


async def look(redis: Redis, phone_number_ids: Sequence[str]) -> tuple[float, dict[str, State]]:
    """Redis' time, and what each number's bucket is at. Books and changes nothing."""
    keys = [_key(number) for number in phone_number_ids]
    answer = await redis.register_script(_SCRIPT)(keys=keys, args=["look"])
    now, *parts = (float(part) for part in cast("list[bytes]", answer))
    states = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return now, {
        number: State(pace, paused_s, bool(throttled))
        for number, (pace, paused_s, throttled) in zip(phone_number_ids, states, strict=True)
    }


def _key(phone_number_id: str) -> str:
    return f"headrace:bucket:{phone_number_id}"
