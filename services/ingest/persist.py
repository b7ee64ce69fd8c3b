"""Group commit: one insert carries every webhook that came while the last was being written."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from services.ingest.group import StoredWebhook, pack
from services.ingest.metrics import GROUP_SIZE
from shared.periodic import describe

log = structlog.get_logger()

# Two seconds of the fastest traffic measured; what is over it is Meta's to send again.
_MOST_WAITING = 20_000
_MOST_BYTES = 64 * 2**20
# One row: small enough that a batch of rows fits into memory.
_MOST_IN_GROUP = 2000
_MOST_BYTES_IN_GROUP = 2 * 2**20
# Above this, compressing takes longer than a thread costs.
_LARGE = 128 * 2**10
# Meta counts an answer after some seconds as none.
_WRITE_SECONDS = 8.0
_WAIT_SECONDS = 10.0

_STORE = text("""
WITH stored AS (
    INSERT INTO webhook_groups (webhooks, bodies) VALUES (:webhooks, :bodies)
    RETURNING id, received_at
)
INSERT INTO webhook_pending (purpose, group_id, received_at)
SELECT 'apply', id, received_at FROM stored
""")


class NotStoredError(Exception):
    """The webhook is not stored: Meta has to send it again."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    webhook: StoredWebhook
    stored: asyncio.Future[None]


class GroupCommit:
    """Stores webhooks; one insert at a time, with no timer.

    The writer is a task of its own: a client that goes away takes nobody else's webhook with it.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._writer: asyncio.Task[None] | None = None
        self._closed = False
        #: Set after each insert: there is something to apply.
        self.arrived = asyncio.Event()

    @property
    def accepts(self) -> bool:
        """Whether there is room for one more."""
        full = len(self._waiting) >= _MOST_WAITING or self._bytes >= _MOST_BYTES
        return not (self._closed or full)

    async def store(self, webhook: StoredWebhook) -> None:
        """Return when the webhook is committed. Raises `NotStoredError`."""
        if not self.accepts:
            raise NotStoredError
        loop = asyncio.get_running_loop()
        waiting = _Waiting(webhook, loop.create_future())
        self._waiting.append(waiting)
        self._bytes += len(webhook.body)
        if self._writer is None:
            self._writer = loop.create_task(self._write_all(), name="group-commit")
        end = loop.call_later(_WAIT_SECONDS, _settle, waiting, NotStoredError())
        try:
            await waiting.stored
        finally:
            end.cancel()

    async def close(self) -> None:
        """Refuse what comes from now on and write what is waiting, within a bound."""
        self._closed = True
        if self._writer:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_WAIT_SECONDS):
                    await self._writer

    async def _write_all(self) -> None:
        while self._waiting:
            group = self._next_group()
            # A task, so that whatever it raises is an answer to its group and not our end.
            insert = asyncio.create_task(self._insert([one.webhook for one in group]))
            await asyncio.wait([insert])
            _answer(group, insert)
        self._writer = None

    def _next_group(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        size = 0
        while self._waiting and len(group) < _MOST_IN_GROUP and size < _MOST_BYTES_IN_GROUP:
            one = self._waiting.popleft()
            size += len(one.webhook.body)
            # Whoever gave up waiting has been told that it is not stored.
            if not one.stored.done():
                group.append(one)
        self._bytes -= size
        return group

    async def _insert(self, webhooks: Sequence[StoredWebhook]) -> None:
        size = sum(len(webhook.body) for webhook in webhooks)
        packed = await asyncio.to_thread(pack, webhooks) if size > _LARGE else pack(webhooks)
        values = {"webhooks": len(webhooks), "bodies": packed}
        async with asyncio.timeout(_WRITE_SECONDS), self._engine.connect() as connection:
            # One statement is a transaction of its own: no round trips for BEGIN and COMMIT.
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            try:
                await connection.execute(_STORE, values)
            except IntegrityError:
                # The day's partition was attached while the row was on its way to the default one.
                await connection.execute(_STORE, values)
        GROUP_SIZE.observe(len(webhooks))
        self.arrived.set()


def _answer(group: Sequence[_Waiting], insert: asyncio.Task[None]) -> None:
    error = insert.exception()
    if error:
        log.warning("webhooks_not_stored", webhooks=len(group), **describe(error))
    for one in group:
        _settle(one, NotStoredError() if error else None)


def _settle(waiting: _Waiting, error: Exception | None) -> None:
    if waiting.stored.done():
        return
    if error:
        waiting.stored.set_exception(error)
    else:
        waiting.stored.set_result(None)
