"""Reads in two short round trips what Redis knows of numbers: for people, never for sending."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from redis.asyncio import Redis
from redis.exceptions import RedisError

from services.sender.campaigns.vitals import NumberVitals, Pause, Vitals, rate_of, total
from services.sender.pipeline.bucket import State, look
from services.sender.pipeline.pulse import Held, Pulses, read_pulses
from shared.redis import Patience

_BOUND_S = 1.0
_MINUTE = 60


async def read_vitals(
    redis: Redis, patience: Patience, numbers: Sequence[str], campaign: int | None = None
) -> Vitals | None:
    """None when Redis does not answer within a second, or has just not answered."""
    if not patience.left():
        return None
    try:
        async with asyncio.timeout(_BOUND_S):
            now, states = await look(redis, numbers)
            pulses = await read_pulses(redis, now, numbers, campaign)
    except (RedisError, TimeoutError):
        patience.learn(answered=False)
        return None
    patience.learn(answered=True)
    return Vitals(
        workers=len(pulses.held),
        numbers={number: _number(number, states[number], pulses, now) for number in numbers},
        rate=rate_of(pulses.campaign, now),
    )


def _number(number: str, state: State, pulses: Pulses, now: float) -> NumberVitals:
    sent = pulses.numbers[number]
    held = _held(number, pulses)
    token = [one for one in held if one.reason == "token_missing"]
    return NumberVitals(
        pace=state.pace,
        sends_last_minute=total(sent, range(int(now) - _MINUTE, int(now))),
        pause=_bucket_pause(state, now) or _common_pause(held),
        token_problem=token[0].detail if token else None,
    )


def _held(number: str, pulses: Pulses) -> list[Held]:
    """Why each living process holds the number back; empty when one of them does not."""
    told = [held.get(number) for held in pulses.held]
    found = [one for one in told if one is not None]
    return found if len(found) == len(told) else []


def _bucket_pause(state: State, now: float) -> Pause | None:
    if not state.paused_s:
        return None
    reason = "throttled" if state.throttled else "meta_failing"
    return Pause(reason, datetime.fromtimestamp(now + state.paused_s, UTC))


def _common_pause(held: Sequence[Held]) -> Pause | None:
    """It ends when the first of the processes tries again."""
    tries = [one for one in held if one.reason != "token_missing"]
    if not tries:
        return None
    ends = [one.until for one in tries if one.until is not None]
    return Pause(tries[0].reason, datetime.fromtimestamp(min(ends), UTC) if ends else None)
