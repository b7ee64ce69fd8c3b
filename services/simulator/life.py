"""What happens to an accepted message: which statuses it gets, and when each is posted."""

from dataclasses import dataclass
from typing import NamedTuple

from services.simulator.dice import Dice, Die
from services.simulator.scenario import FailedShare, Webhooks

# Long enough that a repetition mostly comes in another batch.
_REPEATED_WITHIN_S = 2.0
_REORDERED_BY_S = 0.3


class Step(NamedTuple):
    """Post `status` after `delay` seconds; it happened `happened` seconds after acceptance."""

    delay: float
    status: str
    happened: float


@dataclass(frozen=True, slots=True)
class Life:
    """The posts of one message. The first of `steps` goes before the reply if `early`."""

    steps: tuple[Step, ...]
    early: bool
    lost: int
    repeated: int


def live(webhooks: Webhooks, dice: Dice, failure: FailedShare | None, *, certain: bool) -> Life:
    """Plan a life. `certain`: one status at least is not lost (the sender has no other proof)."""
    natural = _natural(webhooks, dice, failure)
    planned = _reorder(natural) if dice.hits(Die.REORDER, webhooks.reorder_share) else natural
    kept = [
        step
        for die, step in enumerate(planned, Die.LOST)
        if not dice.hits(die, webhooks.lost_share)
    ]
    if certain and not kept:
        kept = planned[-1:]
    repeats = _repeats(webhooks, dice, kept)
    return Life(
        steps=tuple(sorted(kept + repeats)),
        early=dice.hits(Die.EARLY, webhooks.early_share),
        lost=len(planned) - len(kept),
        repeated=len(repeats),
    )


def _natural(webhooks: Webhooks, dice: Dice, failure: FailedShare | None) -> list[Step]:
    """Each status in its order; log-normal steps from one to the next."""
    steps: list[Step] = []
    at = 0.0
    medians = webhooks.delay_s.model_dump()
    for die, status in enumerate(_statuses(webhooks, dice, failure), Die.DELAY):
        at += dice.around(die, medians.get(status, webhooks.delay_s.delivered), webhooks.jitter)
        steps.append(Step(at, status, at))
    return steps


def _statuses(webhooks: Webhooks, dice: Dice, failure: FailedShare | None) -> tuple[str, ...]:
    if failure is not None:
        return ("sent", "failed") if failure.after_sent else ("failed",)
    if dice.hits(Die.READ, webhooks.read_share):
        return ("sent", "delivered", "read")
    return ("sent", "delivered")


def _reorder(steps: list[Step]) -> list[Step]:
    """The latest first: earlier ones wait for it, so that none comes before it happened."""
    last = steps[-1].delay
    waits = range(len(steps) - 1, -1, -1)
    return [
        step._replace(delay=last + wait * _REORDERED_BY_S)
        for step, wait in zip(steps, waits, strict=True)
    ]


def _repeats(webhooks: Webhooks, dice: Dice, steps: list[Step]) -> list[Step]:
    return [
        step._replace(
            delay=step.delay + _REPEATED_WITHIN_S * dice.uniform(Die.REPEAT_AFTER + place)
        )
        for place, step in enumerate(steps)
        if dice.hits(Die.REPEATED + place, webhooks.repeated_share)
    ]
