"""One live message: its row stands first, then its permit, the send, and the record of its end."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.sender import metrics
from services.sender.pipeline.bucket import Bucket, Slots
from services.sender.pipeline.claim import ClaimedMessage
from services.sender.pipeline.classify import classify
from services.sender.pipeline.live_rows import (
    LiveNumber,
    LiveRefused,
    LiveRow,
    Refusal,
    look,
    write,
)
from services.sender.pipeline.outcome import Accepted, Outcome, Throttled
from services.sender.pipeline.pulse import count_live
from services.sender.pipeline.record import Result, record
from services.sender.pipeline.recorder import Recorder
from services.sender.pipeline.send import Outlet
from services.sender.settings import SenderSettings
from shared.db.faults import DatabaseFault
from shared.db.installation import Installation
from shared.domain.phones import Phone
from shared.domain.tokens import Token
from shared.periodic import describe
from shared.settings import SettingsError
from shared.whatsapp.errors import Effect
from shared.whatsapp.live import Kind, live_body

log = structlog.get_logger()

#: Longest wait for a permit. The bucket forgets slots that are much further ahead.
MOST_WAIT_S = 10.0
# A halt or a pause must stop what waits for its permit too, within a second.
_LOOK_AGAIN_S = 0.25
_DATABASE_S = 2.0
# What was cut off has only to hand over its result.
_CUT_S = 2.0


@dataclass(frozen=True, slots=True)
class LiveMessage:
    """What a caller wants to say to one person, and how long it may wait for a permit."""

    phone: Phone = field(repr=False)
    kind: Kind
    content: Any = field(repr=False)
    reply_to: str | None
    most_wait_s: float


@dataclass(frozen=True, slots=True)
class Written:
    """A message whose row stands: it is sent once, by this process, or never."""

    row: LiveRow
    number: LiveNumber
    message: LiveMessage
    claimed: float
    installation: str
    access_token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class End:
    """What became of it.

    `left` is the slot it left at, in Redis' time; `wait`, where no permit came, how long one takes.
    """

    row: LiveRow
    outcome: Outcome
    wait: float | None = None
    left: float | None = None


#: Something to be written in the transaction that records the end.
Keep = Callable[[AsyncConnection, End], Awaitable[None]]


class Live:
    """The live messages of this process."""

    def __init__(
        self,
        engine: AsyncEngine,
        redis: Redis,
        outlet: Outlet,
        recorder: Recorder,
        settings: SenderSettings,
    ) -> None:
        self._engine = engine
        self._redis = redis
        self._outlet = outlet
        self._recorder = recorder
        self._settings = settings
        self._installation = Installation(engine, settings.installation)
        self._buckets: dict[str, Bucket] = {}
        self._tasks: set[asyncio.Task[End]] = set()
        self._stopped_at: float | None = None

    async def write(
        self, connection: AsyncConnection, phone_number_id: str, message: LiveMessage
    ) -> Written:
        """Write the row, in the caller's transaction. Raises `LiveRefused`: then there is none."""
        if self._stopped_at is not None:
            raise LiveRefused(Refusal.STOPPING)
        claimed, installation = time.monotonic(), await self._installation.id()
        number = await look(connection, phone_number_id)
        try:
            access_token = self._settings.token_for(number.token_name)
        except SettingsError as error:
            raise LiveRefused(Refusal.NO_TOKEN, str(error)) from None
        phone, kind = message.phone, message.kind
        row = await write(connection, number, phone, kind, self._settings.allowed_recipients)
        return Written(row, number, message, claimed, installation, access_token)

    async def send(self, written: Written, keep: Keep) -> End:
        """Send what was written and committed, and record what became of it.

        It goes on to its end also when whoever waits for it goes away.
        """
        task = asyncio.create_task(self._run(written, keep))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def stop(self) -> None:
        """From now on nothing is taken; what is under way goes on."""
        self._stopped_at = self._stopped_at or time.monotonic()

    async def drain(self, seconds: float) -> int:
        """Wait so long, counted from the stop, then cut off what is left; returns how many."""
        self.stop()
        left = seconds - (time.monotonic() - (self._stopped_at or 0))
        late = (await asyncio.wait(self._tasks, timeout=max(0, left)))[1] if self._tasks else set()
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_CUT_S)
        return len(late)

    def _ended(self, task: asyncio.Task[End]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # The row stays claimed: the reclaimer makes it unknown after the lease.
            log.error("live_send_broke", **describe(error))

    async def _run(self, written: Written, keep: Keep) -> End:
        try:
            end = await self._leave(written)
        except asyncio.CancelledError:
            # Only what has not left raises it.
            self._recorder.add(_result(_unsent(written, "drained")))
            raise
        await self._record(end, keep)
        await self._tell(written, end)
        return end

    async def _leave(self, written: Written) -> End:
        asked = time.monotonic()
        try:
            slots = await _permit(self._bucket(written.number), written)
        except RedisError as error:
            metrics.FAULTS.labels("live", type(error).__name__).inc()
            return _unsent(written, "no_permits")
        if not slots.count:
            return _unsent(written, "no_permit", slots.wait)
        name = written.number.phone_number_id
        metrics.LIVE_WAIT_SECONDS.labels(name).observe(max(0.0, slots.first - asked))
        await asyncio.sleep(max(0.0, slots.first - time.monotonic()))
        barred = await self._barred(written)
        if barred is not None:
            return _unsent(written, barred)
        return End(written.row, await self._post(written), left=slots.redis_first)

    async def _barred(self, written: Written) -> str | None:
        """Why it may not leave any more, after a wait."""
        age = time.monotonic() - written.claimed
        if age > self._settings.lease_s / 2:
            return "stale"
        if age < _LOOK_AGAIN_S:
            return None
        try:
            async with asyncio.timeout(_DATABASE_S), self._engine.connect() as connection:
                await look(connection, written.number.phone_number_id)
        except LiveRefused as refused:
            return refused.refusal
        except DatabaseFault as error:
            metrics.FAULTS.labels("live", type(error).__name__).inc()
            return "database_away"
        return None

    async def _post(self, written: Written) -> Outcome:
        message, number = written.message, written.number.phone_number_id
        token = Token(written.installation, written.row.id, 1).encode()
        body = live_body(written.row.phone, message.kind, message.content, message.reply_to, token)
        left_at = time.monotonic()
        reply = await self._outlet.post(number, "messages", body, written.access_token)
        outcome = classify(reply)
        code = 0 if isinstance(outcome, Accepted) else outcome.code or 0
        metrics.OUTCOMES.labels(number, type(outcome).__name__.lower(), str(code)).inc()
        metrics.SEND_SECONDS.labels(number).observe(time.monotonic() - left_at)
        return outcome

    async def _tell(self, written: Written, end: End) -> None:
        """Show others what left, and slow the number's campaigns where Meta says so."""
        if end.left is None or (isinstance(end.outcome, Throttled) and end.outcome.sent_nothing):
            return
        await count_live(self._redis, written.number.phone_number_id, end.left)
        await _slow(self._bucket(written.number), end.outcome, end.left)

    async def _record(self, end: End, keep: Keep) -> None:
        """At once, so that whoever asks next sees it; the recorder keeps what cannot be written."""
        try:
            async with asyncio.timeout(_DATABASE_S), self._engine.begin() as connection:
                await record(connection, [_result(end)])
                await keep(connection, end)
        except (*DatabaseFault, UnicodeEncodeError) as error:
            metrics.FAULTS.labels("live", type(error).__name__).inc()
            self._recorder.add(_result(end))
        except asyncio.CancelledError:
            self._recorder.add(_result(end))
            raise

    def _bucket(self, number: LiveNumber) -> Bucket:
        name = number.phone_number_id
        if name not in self._buckets:
            self._buckets[name] = Bucket(self._redis, name)
        return self._buckets[name]


async def _permit(bucket: Bucket, written: Written) -> Slots:
    """A slot, or none where it would take too long. A short pause of the number is waited for."""
    number, end = written.number, time.monotonic() + written.message.most_wait_s
    while True:
        left = end - time.monotonic()
        slots = await bucket.live(number.rate, number.headroom, max(0.0, left))
        if slots.count or slots.wait > left:
            return slots
        await asyncio.sleep(slots.wait)


async def _slow(bucket: Bucket, outcome: Outcome, redis_slot: float) -> None:
    """Meta says that the number is too fast: its campaigns slow down for it too."""
    if not isinstance(outcome, Throttled) or outcome.effect is not Effect.SLOW_NUMBER:
        return
    try:
        await bucket.throttle(redis_slot)
        if outcome.pause:
            await bucket.pause(outcome.pause.total_seconds(), throttled=True)
    except RedisError as error:
        metrics.FAULTS.labels("live", type(error).__name__).inc()


def _unsent(written: Written, why: str, wait: float | None = None) -> End:
    return End(written.row, Throttled(why, sent_nothing=True), wait)


def _result(end: End) -> Result:
    row = end.row
    return Result(ClaimedMessage(row.id, row.campaign_id, 1, 0, row.phone, {}, 0.0), end.outcome)
