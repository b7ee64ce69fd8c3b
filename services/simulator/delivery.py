"""Webhooks under way: due, grouped, signed, posted, and posted again until they get a 200."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence

from services.simulator.poster import Poster
from services.simulator.scenario import Webhooks
from services.simulator.updates import Update, webhook
from services.simulator.wheel import TICK_S, Wheel
from shared.whatsapp.signature import sign


class Post:
    """The statuses of one POST, through all its repetitions; the body is made anew for each."""

    __slots__ = ("number", "taken", "tries", "updates")

    def __init__(self, number: str, updates: list[Update]) -> None:
        self.number = number
        self.updates = updates
        self.tries = 0
        self.taken: asyncio.Event | None = None


class Group:
    """Statuses of one number that wait to share a POST."""

    __slots__ = ("since", "updates")

    def __init__(self, since: float) -> None:
        self.since = since
        self.updates: list[Update] = []


class Delivery:
    """One turn every few milliseconds while there is something to do; no task per webhook."""

    def __init__(self, secret: str, waba_id: str, webhooks: Webhooks) -> None:
        self._secret, self._waba_id = secret, waba_id
        self._webhooks = webhooks
        self._poster: Poster | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.forget()
        self.change(webhooks)

    @property
    def active(self) -> bool:
        """Whether there is anywhere to post to."""
        return self._poster is not None

    def forget(self) -> None:
        """Drop whatever waits and all counts. What is on the wire still ends there, uncounted."""
        now = time.monotonic()
        self._due: Wheel[Update] = Wheel(now)
        self._again: Wheel[Post] = Wheel(now)
        self._groups: dict[str, Group] = {}
        self._queue: deque[Post] = deque()
        self._flying: set[Post] = set()
        self.outstanding = self.posted = self.acknowledged = 0

    def change(self, webhooks: Webhooks) -> None:
        """From now on go by this; what waits is kept."""
        self.close()
        self._webhooks = webhooks
        if webhooks.url:
            self._poster = Poster(webhooks.url, webhooks.connections, webhooks.timeout_s)
        if self.outstanding:
            self._arm()

    def close(self) -> None:
        """Drop the connections; nothing more is posted."""
        if self._poster:
            self._poster.close()
            self._poster = None

    def schedule(self, updates: Sequence[tuple[float, Update]]) -> None:
        """Post each status after so many seconds, with others if the scenario groups them."""
        now = time.monotonic()
        for delay, update in updates:
            self._due.add(now + delay, update)
        self.outstanding += len(updates)
        self._arm()

    async def post_now(self, update: Update, patience_s: float) -> None:
        """Post this status by itself and wait until it was taken, or for so long."""
        post = Post(update.message.number, [update])
        post.taken = asyncio.Event()
        self._queue.appendleft(post)
        self.outstanding += 1
        self._pump()
        self._arm()
        try:
            async with asyncio.timeout(patience_s):
                await post.taken.wait()
        except TimeoutError:
            return

    def _arm(self) -> None:
        if self._timer or not self._poster:
            return
        if self._due or self._again or self._groups or self._queue:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._turn)

    def _turn(self) -> None:
        self._timer = None
        now = time.monotonic()
        for update in self._due.due(now):
            self._gather(update, now)
        self._queue.extend(self._again.due(now))
        self._flush(now)
        self._pump()
        self._arm()

    def _gather(self, update: Update, now: float) -> None:
        number = update.message.number
        group = self._groups.get(number)
        if group is None:
            group = self._groups[number] = Group(now)
        group.updates.append(update)
        if len(group.updates) >= self._webhooks.batch:
            self._close_group(number)

    def _flush(self, now: float) -> None:
        """Close the groups whose window is over."""
        since = now - self._webhooks.window_ms / 1000
        for number in [number for number, group in self._groups.items() if group.since <= since]:
            self._close_group(number)

    def _close_group(self, number: str) -> None:
        self._queue.append(Post(number, self._groups.pop(number).updates))

    def _pump(self) -> None:
        while self._queue and self._poster and self._poster.free():
            self._send(self._poster, self._queue.popleft())

    def _send(self, poster: Poster, post: Post) -> None:
        bare = self._webhooks.omit_token_on_failed
        body = webhook(self._waba_id, post.number, post.updates, bare_failures=bare)
        for message, _, status, _ in post.updates:
            if status == "failed":
                message.failed_reported = True
        self._flying.add(post)
        self.posted += 1
        poster.post(body, sign(self._secret, body), lambda status: self._settle(post, status))

    def _settle(self, post: Post, status: int) -> None:
        if post not in self._flying:
            return  # forgotten meanwhile
        self._flying.discard(post)
        if status == 200:
            self._acknowledge(post)
        else:
            self._repeat(post)
        self._pump()
        self._arm()

    def _acknowledge(self, post: Post) -> None:
        for message, _, status, _ in post.updates:
            message.acknowledge(status)
        self.outstanding -= len(post.updates)
        self.acknowledged += len(post.updates)
        if post.taken:
            post.taken.set()

    def _repeat(self, post: Post) -> None:
        redelivery = self._webhooks.redelivery
        # The shift is bounded: a target may be away for days.
        delay = min(redelivery.first_s * (1 << min(post.tries, 30)), redelivery.cap_s)
        post.tries += 1
        self._again.add(time.monotonic() + delay, post)
