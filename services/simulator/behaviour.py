"""What one send gets: refused, accepted, or a reply that tells nothing."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from services.simulator.dice import Dice, Die
from services.simulator.limits import LastSecond, Pairs, in_episode
from services.simulator.magic import error_of
from services.simulator.scenario import (
    AmbiguousShare,
    FailedShare,
    RecipientShare,
    Scenario,
)
from shared.whatsapp.errors import OutcomeKind

_THROTTLED = 130429
_PAIR = 131056
# In the place of a share's. Only what is final is met again: the rest ends as in the field.
_MAGIC, _ONCE, _FINAL = -1, 1, OutcomeKind.FAILED

_Share = TypeVar("_Share", bound=RecipientShare)


@dataclass(frozen=True, slots=True)
class Refused:
    """An error of Meta's; nothing was accepted."""

    code: int


@dataclass(frozen=True, slots=True)
class Clear:
    """Accepted and answered with its id."""


CLEAR = Clear()


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """Answered in a way that tells nothing. `withheld`: no status will ever come."""

    rule: AmbiguousShare
    withheld: bool


Verdict = Refused | Clear | Ambiguous


class Behaviour:
    """Judges sends by one scenario; holds the state of its limits.

    Shares are of recipients, by a hash of the number: a retry after any delay, in any order, meets
    the same fate until the recipient's bound is used up.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._chancy = bool(scenario.errors or scenario.ambiguous)
        self._pairs = Pairs(scenario.pair_limit) if scenario.pair_limit else None
        self._first_at: dict[str, float] = {}
        self._passed: dict[str, LastSecond] = {}
        self._met: Counter[tuple[int, int, str]] = Counter()

    def judge(self, number: str, to: str, now: float) -> Verdict:
        """Decide in Meta's order: the number's limits, the pair's, then the message itself."""
        if limited := self._limit(number, to, now):
            return Refused(limited)
        told = error_of(to)
        if told and (told.outcome is _FINAL or self._may_meet(Die.ERROR, _MAGIC, to, _ONCE)):
            return Refused(told.code)
        if not self._chancy:
            return CLEAR
        dice = Dice(self._scenario.seed, to)
        error = self._pick(dice, Die.ERROR, self._scenario.errors, to)
        if error:
            return Refused(error.code)
        rule = self._pick(dice, Die.AMBIGUOUS, self._scenario.ambiguous, to)
        if rule is None:
            return CLEAR
        withheld = not rule.accepted or dice.hits(Die.WITHHOLD, rule.withhold)
        return Ambiguous(rule, withheld)

    def failure(self, to: str) -> FailedShare | None:
        """How an accepted message to this recipient fails later, if it does."""
        failed = self._scenario.webhooks.failed
        if not failed:
            return None
        return self._pick(Dice(self._scenario.seed, to), Die.FAILED, failed, to)

    def _limit(self, number: str, to: str, now: float) -> int | None:
        if self._throttles(number, now):
            return _THROTTLED
        if self._pairs and not self._pairs.admit(number, to, now):
            return _PAIR
        return None

    def _throttles(self, number: str, now: float) -> bool:
        first_at = self._first_at.setdefault(number, now)
        if in_episode(self._scenario.throttle_episodes, now - first_at):
            return True
        limit = self._scenario.throughput
        if limit is None:
            return False
        passed = self._passed.setdefault(number, LastSecond())
        if passed.count(now) >= limit:
            return True
        passed.add(now)
        return False

    def _pick(self, dice: Dice, die: int, shares: Sequence[_Share], to: str) -> _Share | None:
        """The one of several disjoint shares that the recipient is in, while its bound lasts."""
        upto = 0.0
        for place, share in enumerate(shares):
            upto += share.share
            if dice.hits(die, upto):
                times = share.times_per_recipient
                return share if times is None or self._may_meet(die, place, to, times) else None
        return None

    def _may_meet(self, die: int, place: int, to: str, times: int) -> bool:
        key = (die, place, to)
        self._met[key] += 1
        return self._met[key] <= times
