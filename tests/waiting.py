"""Waiting for something to become true, with a bound, instead of sleeping."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
PAUSE = 0.02


async def until(
    look: Callable[[], T | Awaitable[T]],
    seconds: float = 10.0,
    *,
    is_right: Callable[[T], object] = bool,
) -> T:
    """Look again and again until what is seen is right; fail with what was seen last.

    `look` may be a plain or an async function; its last value is returned.
    """
    end = time.monotonic() + seconds
    while True:
        seen = look()
        value = await seen if isinstance(seen, Awaitable) else seen
        if is_right(value):
            return value
        assert time.monotonic() < end, f"not within {seconds:g} s; seen last: {value!r}"
        await asyncio.sleep(PAUSE)


async def still(look: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Look for so long; fail as soon as something else is seen than at first, which is returned."""
    first, end = await look(), time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(PAUSE)
        assert (seen := await look()) == first, f"changed from {first!r} to {seen!r}"
    return first
