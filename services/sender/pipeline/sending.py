"""The messages on the wire: starts them, reacts to what comes back, hands results over."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import structlog
from redis.exceptions import RedisError

from services.sender import metrics
from services.sender.pipeline.attempt import Route, attempt
from services.sender.pipeline.breaker import Breaker, Trip
from services.sender.pipeline.bucket import Bucket
from services.sender.pipeline.claim import ClaimedMessage
from services.sender.pipeline.outage import Outage
from services.sender.pipeline.outcome import Accepted, Failed, Outcome, Throttled
from services.sender.pipeline.pulse import Held
from services.sender.pipeline.record import Result
from services.sender.pipeline.recorder import Recorder
from services.sender.pipeline.send import Outlet
from shared.periodic import describe
from shared.whatsapp.errors import Effect

log = structlog.get_logger()

_HOLD_S = 1.0
# From the end of a pause until the probe, where there are rows, has left.
_PROBE_S = 3.0
# A stop that Meta or the breaker calls for, until its pause is committed and known here.
_STOP_S = 10.0
# The same, for the other processes of the number.
_TELL_S = 1.0
# What was cut off has only to hand over its result.
_CUT_S = 2.0


class Sending:
    """Sends of one number in this process, at most `concurrency` at a time.

    `outage` is public so that a test may wait less.
    """

    def __init__(
        self,
        phone_number_id: str,
        outlet: Outlet,
        recorder: Recorder,
        bucket: Bucket,
        *,
        installation: str,
        concurrency: int,
    ) -> None:
        self._number = phone_number_id
        self._outlet = outlet
        self._recorder = recorder
        self._bucket = bucket
        self._installation = installation
        self._concurrency = concurrency
        self._tasks: dict[asyncio.Task[None], float] = {}
        self._left: Counter[int] = Counter()
        # Twice as long: a busy process notices its timeouts late.
        self.outage = Outage(longest_s=2 * outlet.longest_s)
        self._reaches_meta = True
        self._held_until = 0.0
        self._breakers: dict[int, Breaker] = {}
        self._stopped: dict[int, float] = {}

    @property
    def held(self) -> bool:
        """Whether a reply has just asked this number to stop for a moment."""
        return time.monotonic() < self._held_until

    def holds(self, campaign_id: int) -> bool:
        """Whether a reply has just asked this number, or this campaign, to stop."""
        return self.held or time.monotonic() < self._stopped.get(campaign_id, 0.0)

    def only(self, campaign_ids: Collection[int]) -> None:
        """These run now: what the others' breakers saw is over when they run again."""
        for gone in self._breakers.keys() - campaign_ids:
            del self._breakers[gone]
        for gone in self._stopped.keys() - campaign_ids:
            del self._stopped[gone]

    def why_held(self) -> Held | None:
        """What this process knows of an outage; the end is of the pause, before one tries again.

        Nothing where nobody tries: there may be no rows left that could end it.
        """
        tried = self._tasks or time.monotonic() < self._held_until + _PROBE_S
        if not (self.outage.probing and tried):
            return None
        reason = "meta_failing" if self._reaches_meta else "meta_unreachable"
        return Held(reason, until=self._held_until if self.held else None)

    def take_left(self) -> Counter[int]:
        """Messages that left since the last call, by campaign."""
        left, self._left = self._left, Counter()
        return left

    def room(self) -> int:
        """Free slots; a single one while a probe finds out whether an outage is over."""
        if self.outage.probing:
            probes = [left for left in self._tasks.values() if left > self.outage.held_at]
            return 0 if probes or self.held else 1
        return 0 if self.held else self._concurrency - len(self._tasks)

    def start(self, route: Route, message: ClaimedMessage, redis_slot: float) -> None:
        """Put a message on the wire."""
        metrics.SLOTS.labels(self._number, "used").inc()
        self._left[message.campaign_id] += 1
        now = time.monotonic()
        if message.campaign_id not in self._breakers:
            self._breakers[message.campaign_id] = Breaker(now)
        self._spawn(self._send(route, message, redis_slot, now))

    def give_back(self, message: ClaimedMessage, why: str) -> None:
        """Make a claimed message pending again, under its fence."""
        metrics.RETURNED.labels(self._number, why).inc()
        self._recorder.add(Result(message, Throttled(why, sent_nothing=True)))

    async def drain(self, seconds: float) -> int:
        """Wait for what is on the wire, then cut off the rest; returns how many were cut off."""
        if not self._tasks:
            return 0
        _, late = await asyncio.wait(self._tasks, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_CUT_S)
        return len(late)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = time.monotonic()
        metrics.IN_FLIGHT.labels(self._number).set(len(self._tasks))
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        metrics.IN_FLIGHT.labels(self._number).set(len(self._tasks))
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # The row stays claimed: the reclaimer makes it unknown after the lease.
            log.error("send_broke", phone_number_id=self._number, **describe(error))

    async def _send(
        self, route: Route, message: ClaimedMessage, redis_slot: float, left_at: float
    ) -> None:
        try:
            outcome = await attempt(self._outlet, route, message, self._installation)
        except asyncio.CancelledError:
            self._left[message.campaign_id] -= 1
            self.give_back(message, "drained")
            return
        if _never_left(outcome):
            self._left[message.campaign_id] -= 1
        trip = self._watch(route, message, outcome, left_at)
        self._recorder.add(Result(message, outcome, trip))
        code = 0 if isinstance(outcome, Accepted) else outcome.code or 0
        metrics.OUTCOMES.labels(self._number, type(outcome).__name__.lower(), str(code)).inc()
        metrics.SEND_SECONDS.labels(self._number).observe(time.monotonic() - left_at)
        await self._react(message, outcome, redis_slot, left_at)
        await self._recorder.until_room()

    def _watch(
        self, route: Route, message: ClaimedMessage, outcome: Outcome, left_at: float
    ) -> Trip | None:
        """Show an outcome to its campaign's breaker, unless an outage explains it."""
        campaign, now = message.campaign_id, time.monotonic()
        breaker = self._breakers.get(campaign)
        if breaker is None or left_at <= self.outage.held_at:
            return None
        trip = breaker.look(campaign, route.breaker, outcome, left_at, now)
        if trip is not None:
            self._stop(campaign)
        return trip

    def _stop(self, *campaigns: int) -> None:
        """Let none of these leave until the roster has seen their pause."""
        until = time.monotonic() + _STOP_S
        self._stopped.update(dict.fromkeys(campaigns, until))

    async def _react(
        self, message: ClaimedMessage, outcome: Outcome, redis_slot: float, left_at: float
    ) -> None:
        """Slow or hold the number. Without Redis nothing leaves anyway."""
        pause = self.outage.pause_after(outcome, left_at, time.monotonic())
        try:
            if isinstance(outcome, Throttled):
                await self._obey(message, outcome, redis_slot)
            if pause:
                await self._pause(outcome, pause)
        except RedisError as error:
            metrics.FAULTS.labels("bucket", type(error).__name__).inc()

    async def _obey(self, message: ClaimedMessage, throttled: Throttled, slot: float) -> None:
        """Stop here at once; the pause that the result brings with it stops everybody."""
        match throttled.effect:
            case Effect.NONE | Effect.OPT_OUT:
                pass
            case Effect.SLOW_NUMBER:
                await self._slow(throttled, slot)
            case Effect.PAUSE_CAMPAIGN:
                self._stop(message.campaign_id)
            case _:
                self._stop(*self._breakers)
                await self._bucket.pause(_TELL_S)

    async def _slow(self, throttled: Throttled, redis_slot: float) -> None:
        asked = throttled.pause.total_seconds() if throttled.pause else 0.0
        if await self._bucket.throttle(redis_slot):
            self._hold(_HOLD_S)
        if asked > _HOLD_S:
            self._hold(asked)
            await self._bucket.pause(asked, throttled=True)

    async def _pause(self, outcome: Outcome, seconds: float) -> None:
        self._hold(seconds)
        self._reaches_meta = not (isinstance(outcome, Throttled) and outcome.sent_nothing)
        # What reached nobody may be this process' own way to Meta: the others find out themselves.
        if self._reaches_meta:
            await self._bucket.pause(seconds)

    def _hold(self, seconds: float) -> None:
        self._held_until = max(self._held_until, time.monotonic() + seconds)


def _never_left(outcome: Outcome) -> bool:
    match outcome:
        case Throttled(sent_nothing=True) | Failed(concluded=True):
            return True
        case _:
            return False


#: Makes the sends of one number: its id, its bucket, the installation.
MakeSending = Callable[[str, Bucket, str], Sending]
