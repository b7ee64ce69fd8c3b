"""Runs a loop's one step again and again: the only place with sleeps, jitter and a broad catch."""

import asyncio
import random
import traceback
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

import structlog
from prometheus_client import Counter

log = structlog.get_logger()

RUNS: Final = Counter("headrace_loop_runs", "Steps of a background loop", ["loop", "result"])

#: One step: does one batch, and says whether there is more to do at once.
Step = Callable[[], Awaitable[bool]]

One = TypeVar("One", int, UUID)


async def every(
    seconds: float, step: Step, *, name: str, stop: asyncio.Event | None = None
) -> None:
    """Run `step` every `seconds` (±20 %, so that replicas spread) until stopped or cancelled.

    A step that says there is more runs again at once. A step that raises is logged, and the loop
    goes on after its usual time: the state is in rows, so nothing depends on this one run.
    """
    while stop is None or not stop.is_set():
        if not await _run(step, name):
            await asyncio.sleep(seconds * random.uniform(0.8, 1.2))


async def _run(step: Step, name: str) -> bool:
    try:
        more = await step()
    except Exception as error:  # noqa: BLE001  # the one place where a loop survives its step
        RUNS.labels(name, "error").inc()
        log.warning("loop_failed", loop=name, **describe(error))
        return False
    RUNS.labels(name, "ok").inc()
    return more


async def each(ids: Iterable[One], act: Callable[[One], Awaitable[bool]], *, name: str) -> int:
    """Act on one after the other; returns for how many that was true.

    One that raises is logged with its id and keeps no other back.
    """
    done = 0
    for one in ids:
        try:
            done += await act(one)
        except Exception as error:  # noqa: BLE001  # as above, for a part of a step
            RUNS.labels(name, "error").inc()
            log.warning("loop_failed", loop=name, id=str(one), **describe(error))
    return done


def describe(error: BaseException) -> dict[str, str]:
    """Kind and place of an error. Not its text: a database error quotes the rows it met."""
    cause = error.__cause__ or getattr(error, "orig", None)
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return {
        "error": type(error).__name__,
        "cause": str(state or type(cause).__name__),
        "place": place,
    }
