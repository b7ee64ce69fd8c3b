"""Collects results and writes them in batches; a full queue is what holds the senders back."""

import asyncio
from collections.abc import Sequence

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.sender import metrics
from services.sender.pipeline.outcome import Unknown
from services.sender.pipeline.record import Result, record
from shared.db.faults import DatabaseFault, is_poison
from shared.periodic import describe

log = structlog.get_logger()

_BATCH = 500
CAPACITY = 5_000
# A result in memory is what a crash leaves in doubt, so it waits only as long as pays.
_GATHER_S = 0.04
_RETRY_S = 0.5


class Recorder:
    """One per process. Results are kept, in order, until the database has them."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._queue: asyncio.Queue[Result] = asyncio.Queue()
        self._batch: list[Result] = []
        self._shorter = asyncio.Event()

    def add(self, result: Result) -> None:
        """Hand a result over. At once, so that a cancelled sender cannot lose it on the way."""
        self._queue.put_nowait(result)

    async def until_room(self) -> None:
        """Wait while the queue is full; whoever adds waits here before it takes on more."""
        while self._queue.qsize() >= CAPACITY:
            self._shorter.clear()
            await self._shorter.wait()

    async def flush(self) -> None:
        """Wait until everything handed over is written."""
        await self._queue.join()

    @property
    def waiting(self) -> int:
        """Results that are not written yet."""
        return self._queue.qsize() + len(self._batch)

    async def step(self) -> bool:
        """Write one batch. What fails unexpectedly stays for the next step."""
        self._batch = self._batch or await self._gather()
        for part in _distinct(self._batch):
            await self._write(part)
        for _ in self._batch:
            self._queue.task_done()
        self._batch = []
        return True

    async def _gather(self) -> list[Result]:
        batch = [await self._queue.get()]
        await asyncio.sleep(_GATHER_S)
        while len(batch) < _BATCH and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        self._shorter.set()
        metrics.RECORD_BATCH.observe(len(batch))
        metrics.RECORD_WAITING.set(self._queue.qsize())
        return batch

    async def _write(self, batch: Sequence[Result]) -> None:
        """Write a batch, however long the database is away."""
        while True:
            try:
                await self._write_once(batch)
            except DatabaseFault as error:
                metrics.FAULTS.labels("record", type(error).__name__).inc()
                log.warning("record_failed", results=len(batch), **describe(error))
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def _write_once(self, batch: Sequence[Result]) -> None:
        try:
            async with self._engine.begin() as connection:
                hit = await record(connection, batch)
        except (*DatabaseFault, UnicodeEncodeError) as error:
            if not is_poison(error):
                raise
        else:
            metrics.UNMATCHED.inc(len(batch) - hit)
            return
        async with self._engine.begin() as connection:
            await write_halving(connection, batch)


async def write_halving(connection: AsyncConnection, batch: Sequence[Result]) -> None:
    """Record a batch; where a row's values are refused, halve it until that row stands alone."""
    try:
        async with connection.begin_nested():
            hit = await record(connection, batch)
    except (*DatabaseFault, UnicodeEncodeError) as error:
        if not is_poison(error):
            raise
        await _halve(connection, batch, error)
    else:
        metrics.UNMATCHED.inc(len(batch) - hit)


async def _halve(connection: AsyncConnection, batch: Sequence[Result], error: Exception) -> None:
    if len(batch) > 1:
        middle = len(batch) // 2
        await write_halving(connection, batch[:middle])
        await write_halving(connection, batch[middle:])
        return
    metrics.FAULTS.labels("record", "poison").inc()
    log.error("result_refused", message_id=batch[0].message.id, **describe(error))
    bare = Unknown("unrecordable")
    if batch[0].outcome != bare:
        await write_halving(connection, [Result(batch[0].message, bare)])


def _distinct(batch: Sequence[Result]) -> list[list[Result]]:
    """Split so that no part has two results of one message: a statement takes each row once."""
    parts: list[list[Result]] = []
    seen: list[set[int]] = []
    for result in batch:
        place = next((i for i, ids in enumerate(seen) if result.message.id not in ids), None)
        if place is None:
            place = len(parts)
            parts.append([])
            seen.append(set())
        parts[place].append(result)
        seen[place].add(result.message.id)
    return parts
