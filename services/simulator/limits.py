"""Meta's limits, exact to the request: throughput, pairs, episodes; and the peaks reached."""

from collections import deque

from services.simulator.scenario import PairLimit, ThrottleEpisodes

# Below this the map of pairs is not worth sweeping.
_SWEEP = 10_000


class LastSecond:
    """The times within the half-open second that ends now, and the most there ever were."""

    __slots__ = ("_times", "most")

    def __init__(self) -> None:
        self._times: deque[float] = deque()
        self.most = 0

    def count(self, now: float) -> int:
        """How many there were after `now` minus one second."""
        times = self._times
        while times and times[0] <= now - 1:
            times.popleft()
        return len(times)

    def add(self, now: float) -> None:
        """Count one. Any second that holds the most ends with one of these."""
        self._times.append(now)
        self.most = max(self.most, self.count(now))


class Pairs:
    """Meta's pair limit: a debt per pair that shrinks by one message per `per_s`."""

    def __init__(self, limit: PairLimit) -> None:
        self._limit = limit
        self._paid_at: dict[tuple[str, str], float] = {}
        self._sweep_at = _SWEEP

    def admit(self, number: str, to: str, now: float) -> bool:
        """Whether this message may go; if so it is owed for."""
        limit = self._limit
        paid_at = max(self._paid_at.get((number, to), now), now)
        if paid_at - now > (limit.burst - 1) * limit.per_s:
            return False
        self._paid_at[number, to] = paid_at + limit.per_s
        self._sweep(now)
        return True

    def _sweep(self, now: float) -> None:
        """Forget who owes nothing, at most once per doubling: memory follows the active pairs."""
        if len(self._paid_at) < self._sweep_at:
            return
        self._paid_at = {pair: at for pair, at in self._paid_at.items() if at > now}
        self._sweep_at = max(_SWEEP, 2 * len(self._paid_at))


def in_episode(episodes: ThrottleEpisodes | None, since_first: float) -> bool:
    """Whether a number refuses everything, so long after its first request."""
    if episodes is None:
        return False
    return since_first % episodes.every_s >= episodes.every_s - episodes.for_s
