"""Once a second each worker process tells Redis that it lives, what left, and what it holds back.

Nothing relies on it but what people see: a beat that is lost is lost.
"""

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast
from uuid import uuid4

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import RedisError

from services.sender import metrics

_BOUND_S = 1.0
# A process that has told nothing for so long does not live.
_ALIVE_S = 5.0
_KEEP_S = 130
# A new key for each of these spans: Redis forgets the dead, and seconds that nobody asks for.
_PROCESSES_S = 10
_SENT_S = 60


@dataclass(frozen=True, slots=True)
class Held:
    """Why a process sends nothing for a number; until when, if known, in its reader's seconds."""

    reason: str
    detail: str | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Pulses:
    """What the living processes hold back, and what left in which second of Redis' time."""

    held: list[dict[str, Held]]
    numbers: dict[str, dict[int, int]]
    campaign: dict[int, int]


class Pulse:
    """One worker process, which beats just after each whole second of Redis' time."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._process = uuid4().hex
        self._last = self._next = time.monotonic()

    async def due(self) -> None:
        """Wait for the next whole second."""
        await asyncio.sleep(max(0.0, self._next - time.monotonic()))

    async def beat(self, left: Mapping[str, Mapping[int, int]], held: Mapping[str, Held]) -> None:
        """Tell what left since the last beat, by number and campaign, and what is held back now.

        `until` of what is held is monotonic.
        """
        last, self._last = self._last, time.monotonic()
        self._next = self._last + 1
        try:
            async with asyncio.timeout(_BOUND_S):
                seconds, microseconds = await self._redis.time()
                ahead = seconds + microseconds / 1e6 - time.monotonic()
                self._next = self._last + _to_next(self._last + ahead)
                await self._write(last + ahead, self._last + ahead, left, held)
        except (RedisError, TimeoutError) as error:
            metrics.FAULTS.labels("pulse", type(error).__name__).inc()

    async def _write(
        self,
        last: float,
        now: float,
        left: Mapping[str, Mapping[int, int]],
        held: Mapping[str, Held],
    ) -> None:
        async with self._redis.pipeline(transaction=False) as pipe:
            key = _processes_key(now)
            pipe.hset(key, self._process, _encode(now, held))
            pipe.expire(key, _KEEP_S)
            for number, campaigns in left.items():
                _add(pipe, "number", number, spread(sum(campaigns.values()), last, now))
                for campaign, count in campaigns.items():
                    _add(pipe, "campaign", campaign, spread(count, last, now))
            await pipe.execute()


async def count_live(redis: Redis, phone_number_id: str, redis_slot: float) -> None:
    """Add a live message that left at this slot to what its number has sent."""
    try:
        async with asyncio.timeout(_BOUND_S), redis.pipeline(transaction=False) as pipe:
            _add(pipe, "number", phone_number_id, {int(redis_slot): 1})
            await pipe.execute()
    except (RedisError, TimeoutError) as error:
        metrics.FAULTS.labels("pulse", type(error).__name__).inc()


def spread(count: int, begin: float, end: float) -> dict[int, int]:
    """What left between two moments by second, as if evenly: a busy process beats late."""
    parts, given = {}, 0
    for second in range(int(begin), int(end) + 1):
        share = (min(second + 1, end) - begin) / (end - begin)
        parts[second] = round(count * share) - given
        given += parts[second]
    return parts


async def read_pulses(
    redis: Redis, now: float, numbers: Sequence[str], campaign: int | None
) -> Pulses:
    """What was told in the last minute or two, in one round trip; `now` is Redis' time."""
    sent = [("number", number) for number in numbers]
    sent += [] if campaign is None else [("campaign", str(campaign))]
    async with redis.pipeline(transaction=False) as pipe:
        pipe.hgetall(_processes_key(now - _PROCESSES_S))
        pipe.hgetall(_processes_key(now))
        for kind, name in sent:
            pipe.hgetall(_sent_key(kind, name, now - _SENT_S))
            pipe.hgetall(_sent_key(kind, name, now))
        answers = cast("list[dict[bytes, bytes]]", await pipe.execute())
    processes, *seconds = (
        {**before, **current} for before, current in zip(answers[::2], answers[1::2], strict=True)
    )
    counts = [{int(second): int(count) for second, count in one.items()} for one in seconds]
    return Pulses(
        held=_living(processes.values(), now),
        numbers=dict(zip(numbers, counts, strict=False)),
        campaign={} if campaign is None else counts[-1],
    )


def _to_next(now: float) -> float:
    """Seconds to the next whole one; a beat that came a little early is that second's beat."""
    return 1.5 - (now + 0.5) % 1


def _add(pipe: Pipeline, kind: str, name: str | int, seconds: Mapping[int, int]) -> None:
    for second, count in seconds.items():
        if count:
            key = _sent_key(kind, name, second)
            pipe.hincrby(key, str(second), count)
            pipe.expire(key, _KEEP_S)


def _processes_key(now: float) -> str:
    return f"headrace:processes:{int(now // _PROCESSES_S)}"


def _sent_key(kind: str, name: str | int, now: float) -> str:
    return f"headrace:sent:{kind}:{name}:{int(now // _SENT_S)}"


def _encode(now: float, held: Mapping[str, Held]) -> str:
    """What the process holds back, its times in Redis' time."""
    ahead = now - time.monotonic()
    told = {
        number: [one.reason, one.detail, None if one.until is None else one.until + ahead]
        for number, one in held.items()
    }
    return json.dumps({"at": now, "held": told})


def _living(told: Iterable[bytes], now: float) -> list[dict[str, Held]]:
    states = [json.loads(one) for one in told]
    return [
        {number: Held(*held) for number, held in state["held"].items()}
        for state in states
        if state["at"] > now - _ALIVE_S
    ]
