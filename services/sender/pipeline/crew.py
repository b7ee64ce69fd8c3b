"""One worker per business number that may send: started and kept up to date from the roster."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import structlog
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender import metrics
from services.sender.pipeline.bucket import Bucket
from services.sender.pipeline.desk import Bounds, Desk
from services.sender.pipeline.roster import NumberView, read_roster
from services.sender.pipeline.sending import MakeSending
from services.sender.pipeline.watermarks import BEGINNING, Look, Watermarks
from services.sender.pipeline.worker import Worker
from shared.db.installation import Installation
from shared.periodic import every
from shared.settings import SettingsError

log = structlog.get_logger()

_ROSTER_S = 0.5
_ERROR_WAIT_S = 1.0
_CLAIM_END_S = 3.0


@dataclass(slots=True)
class _Member:
    desk: Desk
    worker: Worker
    preparing: asyncio.Task[None]
    releasing: asyncio.Task[None]


class Crew:
    """All workers of this process."""

    def __init__(
        self,
        engine: AsyncEngine,
        redis: Redis,
        make_sending: MakeSending,
        token_for: Callable[[str | None], str],
        *,
        installation: Installation,
        bounds: Bounds,
    ) -> None:
        self._engine = engine
        self._redis = redis
        self._make_sending = make_sending
        self._token_for = token_for
        self._installation = installation
        self._bounds = bounds
        self._watermarks = Watermarks()
        self._members: dict[str, _Member] = {}
        self._campaigns: list[int] = []
        self._woken = asyncio.Event()
        self._stop = asyncio.Event()

    def wake(self) -> None:
        """Something has changed: look at the roster at once."""
        self._woken.set()

    async def refresh_in_time(self) -> bool:
        """Refresh after half a second, or as soon as something changes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_ROSTER_S):
                await self._woken.wait()
        self._woken.clear()
        return await self.refresh()

    async def refresh(self) -> bool:
        """Read the roster once and hand each worker its part; nothing once stopped."""
        starts = self._watermarks.starts(self._campaigns)
        began = time.monotonic()
        roster = await read_roster(self._engine, starts)
        campaigns = [campaign for view in roster for campaign in view.campaigns]
        looks = [Look(one.id, starts.get(one.id, BEGINNING), one.due_at) for one in campaigns]
        self._watermarks.looked(looks, time.monotonic() - began)
        self._campaigns = [campaign.id for campaign in campaigns]
        views = {view.phone_number_id: view for view in roster}
        installation = await self._installation.id()
        if self._stop.is_set():
            return False
        for number in views.keys() | self._members.keys():
            self._update(self._member(number, installation).desk, number, views.get(number))
        return False

    def _update(self, desk: Desk, number: str, view: NumberView | None) -> None:
        try:
            token = self._token_for(view.token_name) if view else ""
        except SettingsError as error:
            metrics.FAULTS.labels("token", "SettingsError").inc()
            log.warning("token_missing", phone_number_id=number, problem=str(error))
            view, token = None, ""
        desk.update(view, token)

    def _member(self, number: str, installation: str) -> _Member:
        if number not in self._members:
            bucket = Bucket(self._redis, number)
            desk = Desk(number, self._engine, self._watermarks, self._bounds)
            worker = Worker(bucket, desk, self._make_sending(number, bucket, installation))
            # A block that was prepared is released before the end: only claiming stops.
            preparing = every(_ERROR_WAIT_S, worker.prepare, name="prepare", stop=self._stop)
            releasing = every(_ERROR_WAIT_S, worker.release, name="release")
            self._members[number] = _Member(
                desk, worker, asyncio.create_task(preparing), asyncio.create_task(releasing)
            )
        return self._members[number]

    def stop(self) -> None:
        """From now on nothing is claimed and nothing leaves."""
        self._stop.set()
        for member in self._members.values():
            member.desk.update(None, "")

    async def drain(self, seconds: float) -> int:
        """Stop, hand back what did not leave, finish what is on the wire.

        Returns how many sends were cut off after `seconds`.
        """
        self.stop()
        await _end([member.preparing for member in self._members.values()])
        cut = await asyncio.gather(*(m.worker.drain(seconds) for m in self._members.values()))
        for member in self._members.values():
            member.releasing.cancel()
        return sum(cut)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Let claims end by themselves. One that hangs is cut off: the reclaimer finds its rows."""
    late = (await asyncio.wait(tasks, timeout=_CLAIM_END_S))[1] if tasks else set()
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
