"""What ingest does in the background: apply, try again, measure, make partitions."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from services.ingest.inbox import apply_once, measure_once
from services.ingest.parked import retry_parked_once
from shared.db.installation import Installation
from shared.db.partitions import ensure_days
from shared.periodic import every

# Groups of other processes announce themselves to nobody here.
_POLL_SECONDS = 0.5
# After a batch that emptied the inbox: a batch of ten costs nearly what one of a thousand does.
_BREATH_SECONDS = 0.1
_PARKED_SECONDS = 15
_MEASURE_SECONDS = 5
_PARTITIONS_SECONDS = 600


def loops(
    engine: AsyncEngine, arrived: asyncio.Event, installation: str | None
) -> list[Coroutine[Any, Any, None]]:
    """The loops, not started yet. `arrived` says that this process has stored something."""
    identity = Installation(engine, installation)
    apply = partial(_apply_all, engine, identity, arrived)
    parked = partial(_with_installation, retry_parked_once, engine, identity)
    return [
        every(_BREATH_SECONDS, apply, name="apply"),
        every(_PARKED_SECONDS, parked, name="parked"),
        every(_MEASURE_SECONDS, partial(measure_once, engine), name="measure"),
        every(_PARTITIONS_SECONDS, partial(_make_partitions, engine), name="partitions"),
    ]


async def _apply_all(
    engine: AsyncEngine, installation: Installation, arrived: asyncio.Event
) -> bool:
    """Wait for something to apply, then apply until nothing is left."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_POLL_SECONDS):
            await arrived.wait()
    arrived.clear()
    while await apply_once(engine, await installation.id()):
        pass
    return False


async def _with_installation(
    step: Callable[[AsyncEngine, str], Awaitable[bool]],
    engine: AsyncEngine,
    installation: Installation,
) -> bool:
    return await step(engine, await installation.id())


async def _make_partitions(engine: AsyncEngine) -> bool:
    async with engine.begin() as connection:
        await ensure_days(connection)
    return False
