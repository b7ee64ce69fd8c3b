"""A timer wheel: a million waiting things cost one list entry each, and no timer of their own."""

import asyncio
import time
from typing import Generic, TypeVar

TICK_S = 0.005

_Item = TypeVar("_Item")


class Wheel(Generic[_Item]):
    """Items by the tick in which they fall due; within a tick in the order of adding."""

    def __init__(self, now: float) -> None:
        self._slots: dict[int, list[_Item]] = {}
        self._turned_to = _tick(now)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, when: float, item: _Item) -> None:
        """Due within a tick after `when`, or with the next turn if that is over."""
        tick = max(_tick(when), self._turned_to) + 1
        self._slots.setdefault(tick, []).append(item)
        self._size += 1

    def due(self, now: float) -> list[_Item]:
        """Take out what has fallen due."""
        tick = _tick(now)
        passed = self._passed(tick)
        self._turned_to = max(self._turned_to, tick)
        items = [item for past in passed for item in self._slots.pop(past, ())]
        self._size -= len(items)
        return items

    def _passed(self, tick: int) -> list[int]:
        """After a long sleep there are fewer slots than ticks."""
        if tick - self._turned_to > len(self._slots):
            return sorted(passed for passed in self._slots if passed <= tick)
        return list(range(self._turned_to + 1, tick + 1))


class Pauses:
    """Sleeps that end together, once per tick: thousands of timers of their own cost more."""

    def __init__(self) -> None:
        self._wheel: Wheel[asyncio.Future[None]] = Wheel(time.monotonic())
        self._armed = False

    async def pause(self, seconds: float) -> None:
        """Sleep for so long, to the tick."""
        loop = asyncio.get_running_loop()
        end = loop.create_future()
        self._wheel.add(time.monotonic() + seconds, end)
        if not self._armed:
            self._armed = True
            loop.call_later(TICK_S, self._turn, loop)
        await end

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        for end in self._wheel.due(time.monotonic()):
            if not end.done():
                end.set_result(None)
        self._armed = bool(self._wheel)
        if self._armed:
            loop.call_later(TICK_S, self._turn, loop)


def _tick(when: float) -> int:
    return int(when / TICK_S)
