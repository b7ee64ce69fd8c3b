"""The orchestrator's loops, how often each runs, and when it goes on at once."""

from collections.abc import Awaitable, Callable

from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.orchestration.breaker import break_failing
from services.sender.orchestration.canceller import skip_pending
from services.sender.orchestration.completer import complete
from services.sender.orchestration.folder import fold_once
from services.sender.orchestration.pruner import drop_old_day, prune
from services.sender.orchestration.reclaimer import reclaim
from services.sender.orchestration.reconciler import reconcile
from services.sender.orchestration.scheduler import start_scheduled
from services.sender.settings import SenderSettings
from shared.periodic import Step


def loops(engine: AsyncEngine, settings: SenderSettings) -> dict[str, tuple[float, Step]]:
    """Name, seconds between two runs, and step of each loop."""
    webhooks_days = settings.keep_webhooks_days
    return {
        # With its jitter less than five seconds: a start is promised within those.
        "scheduler": (4, _until_none(lambda: start_scheduled(engine))),
        "reclaimer": (5, _until_none(lambda: reclaim(engine, settings.lease_s))),
        "reconciler": (5, _until_none(lambda: reconcile(engine))),
        "completer": (2, _until_none(lambda: complete(engine))),
        "breaker": (2, _until_none(lambda: break_failing(engine))),
        "canceller": (1, _until_none(lambda: skip_pending(engine))),
        "pruner": (
            60,
            _until_none(lambda: prune(engine, webhooks_days, settings.keep_rejects_days)),
        ),
        "days": (300, _until_none(lambda: drop_old_day(engine, webhooks_days))),
        "counters": (1, lambda: fold_once(engine)),
    }


def _until_none(count: Callable[[], Awaitable[int]]) -> Step:
    """A step that goes on at once as long as it finds rows."""

    async def step() -> bool:
        return await count() > 0

    return step
