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
from services.sender.pipeline.pulse import Held, Pulse
from services.sender.pipeline.roster import NumberView, read_roster
from services.sender.pipeline.sending import MakeSending, Sending
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
    sending: Sending
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
        self._token_problems: dict[str, str] = {}
        self._pulse = Pulse(redis)
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
            self._update(self._member(number, installation), number, views.get(number))
        return False

    def _update(self, member: _Member, number: str, view: NumberView | None) -> None:
        desk = member.desk
        member.sending.only({campaign.id for campaign in view.campaigns} if view else ())
        token, problem = self._token(view)
        if problem is None:
            desk.update(view, token)
        else:
            metrics.FAULTS.labels("token", "SettingsError").inc()
            desk.update(None, "")
        self._note_token(number, problem, known=view is not None)

    def _token(self, view: NumberView | None) -> tuple[str, str | None]:
        """A number's token, or why there is none."""
        try:
            return self._token_for(view.token_name) if view else "", None
        except SettingsError as error:
            return "", str(error)

    def _note_token(self, number: str, problem: str | None, *, known: bool) -> None:
        """Log a problem once, and its end; of a number that may not send nothing is known."""
        before = self._token_problems.pop(number, None)
        if problem is not None:
            self._token_problems[number] = problem
            if problem != before:
                log.warning("token_missing", phone_number_id=number, problem=problem)
        elif before is not None and known:
            log.info("token_found", phone_number_id=number)

    async def beat_in_time(self) -> bool:
        """Beat at the next whole second."""
        await self._pulse.due()
        return await self.beat()

    async def beat(self) -> bool:
        """Tell Redis what has left since the last beat, and what is held back here and why."""
        left = {number: member.sending.take_left() for number, member in self._members.items()}
        await self._pulse.beat(left, self._held())
        return False

    def _held(self) -> dict[str, Held]:
        outages = {number: member.sending.why_held() for number, member in self._members.items()}
        return {
            **{number: held for number, held in outages.items() if held is not None},
            **{
                number: Held("token_missing", problem)
                for number, problem in self._token_problems.items()
            },
        }

    def _member(self, number: str, installation: str) -> _Member:
        if number not in self._members:
            bucket = Bucket(self._redis, number)
            desk = Desk(number, self._engine, self._watermarks, self._bounds)
            sending = self._make_sending(number, bucket, installation)
            worker = Worker(bucket, desk, sending)
            # A block that was prepared is released before the end: only claiming stops.
            preparing = every(_ERROR_WAIT_S, worker.prepare, name="prepare", stop=self._stop)
            releasing = every(_ERROR_WAIT_S, worker.release, name="release")
            self._members[number] = _Member(
                desk,
                sending,
                worker,
                asyncio.create_task(preparing),
                asyncio.create_task(releasing),
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
