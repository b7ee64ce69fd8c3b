"""What a worker knows of its number now: who may send, how fast, and where to look for rows."""

import asyncio
import time
from dataclasses import dataclass, field

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender import metrics
from services.sender.campaigns.template import compile_template
from services.sender.pipeline.attempt import Route
from services.sender.pipeline.bucket import Slots
from services.sender.pipeline.claim import Claim, ClaimedMessage, Share, claim
from services.sender.pipeline.roster import CampaignView, NumberView
from services.sender.pipeline.shares import Shares
from services.sender.pipeline.watermarks import Watermarks
from shared.domain.campaigns import BreakerLimit


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the settings bound claims by: their age, and whom they are for (None: everyone)."""

    lease_s: float
    allowed: tuple[str, ...] | None = field(default=None, repr=False)


class Desk:
    """Filled from the roster twice a second; empty while the number may not send."""

    def __init__(
        self, phone_number_id: str, engine: AsyncEngine, watermarks: Watermarks, bounds: Bounds
    ) -> None:
        self._number = phone_number_id
        self._engine = engine
        self._watermarks = watermarks
        self._oldest_s = bounds.lease_s / 2
        self._allowed = bounds.allowed
        self._shares = Shares()
        self._view: NumberView | None = None
        self._routes: dict[int, Route] = {}
        self._expecting: set[int] = set()
        self._kept: list[ClaimedMessage] = []
        self._pace = 1.0
        self._careful = False
        self._changed = asyncio.Event()

    @property
    def rate(self) -> float:
        """The configured rate, messages per second."""
        return self._view.rate if self._view else 0.0

    @property
    def headroom(self) -> float:
        """The share of the rate that campaigns leave alone."""
        return self._view.headroom if self._view else 0.0

    @property
    def expects_rows(self) -> bool:
        """Whether a claim would find something: the last one was full, or rows are due."""
        return bool(self._kept or self._expecting)

    def update(self, view: NumberView | None, access_token: str) -> None:
        """Take the newest roster; None while the number may not send at all."""
        campaigns = {campaign.id: campaign for campaign in view.campaigns} if view else {}
        self._view = view
        self._routes = {
            campaign.id: self._route(campaign, access_token) for campaign in campaigns.values()
        }
        due = {campaign.id for campaign in campaigns.values() if campaign.due_at}
        self._expecting = (self._expecting & campaigns.keys()) | due
        self._changed.set()

    def _route(self, campaign: CampaignView, token: str) -> Route:
        known = self._routes.get(campaign.id)
        # A template is frozen at start: compiling it once per process is enough.
        template = known.template if known else compile_template(campaign.template)
        breaker = BreakerLimit.of(campaign.breaker)
        return Route(
            self._number, campaign.endpoint, template, token, breaker, oldest_s=self._oldest_s
        )

    async def wait(self, seconds: float) -> None:
        """Until the next roster, at most so long."""
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def block_size(self, seconds: float) -> int:
        """Messages of one block: what leaves in so many seconds, at least one."""
        pace = self.rate * (1 - self.headroom) * self._pace
        return max(1, int(pace * seconds)) if self._view else 0

    def note(self, slots: Slots) -> None:
        """Learn the effective pace from a booking."""
        self._pace = slots.pace
        metrics.PACE.labels(self._number).set(slots.pace)

    async def claim(self, permits: int) -> list[ClaimedMessage]:
        """Messages for so many permits: those that missed their slot first."""
        new = await self._claim_new(permits - len(self._kept))
        # Taken only now: a claim that fails must not lose them.
        room = permits - len(new)
        kept, self._kept = self._kept[:room], self._kept[room:]
        metrics.SLOTS.labels(self._number, "empty").inc(room - len(kept))
        return kept + new

    async def _claim_new(self, permits: int) -> list[ClaimedMessage]:
        shares = self._divide(permits)
        if not shares:
            return []
        try:
            with metrics.CLAIM_SECONDS.time():
                found = await claim(self._engine, shares, self._allowed)
        except DBAPIError:
            self._step_back()
            raise
        self._learn(shares, found)
        metrics.CLAIMED.labels(self._number).inc(len(found.messages))
        return found.messages

    def _step_back(self) -> None:
        """After a claim that failed, perhaps since it had to pass by too many finished rows.

        The roster's look, which may take longer, finds where the due rows begin; a single row can
        be claimed there whatever lies behind it.
        """
        self._expecting.clear()
        self._careful = True

    def _divide(self, permits: int) -> list[Share]:
        permits = min(permits, 1) if self._careful else permits
        if permits < 1 or not self._view or not self._expecting:
            return []
        weights = {c.id: c.weight for c in self._view.campaigns if c.id in self._expecting}
        parts = self._shares.divide(permits, weights)
        return [Share(one, most, self._watermarks.of(one)) for one, most in parts.items()]

    def _learn(self, shares: list[Share], found: Claim) -> None:
        self._careful = False
        self._watermarks.advance(found.last_due)
        for share in shares:
            if found.taken.get(share.campaign_id, 0) < share.most:
                self._expecting.discard(share.campaign_id)

    def route(self, message: ClaimedMessage) -> Route | str:
        """How the message may leave now, or why it may not."""
        if time.monotonic() - message.claimed > self._oldest_s:
            return "stale"
        return self._routes.get(message.campaign_id, "stopped")

    def keep_for_next(self, message: ClaimedMessage) -> None:
        """Its slot is gone: it takes one of the next block."""
        metrics.SLOTS.labels(self._number, "late").inc()
        self._kept.append(message)

    def take_kept(self) -> list[ClaimedMessage]:
        """Everything kept, for the drain."""
        kept, self._kept = self._kept, []
        return kept
