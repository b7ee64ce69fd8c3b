"""What happens to an accepted message: which statuses it gets, and when each is posted."""

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


class Life(NamedTuple):
    """The posts of one message. The first of `steps` goes before the reply if `early`."""

    steps: list[Step]
    early: bool
    lost: int
    repeated: int


def live(webhooks: Webhooks, dice: Dice, failure: FailedShare | None, *, certain: bool) -> Life:
    """Plan a life. `certain`: one status at least is not lost (the sender has no other proof)."""
    natural = _natural(webhooks, dice, failure)
    reordered = dice.hits(Die.REORDER, webhooks.reorder_share)
    planned = _reorder(natural) if reordered else natural
    kept = _keep(webhooks.lost_share, dice, planned) or planned[-1:] * certain
    repeats = _repeats(webhooks, dice, kept)
    return Life(
        steps=sorted(kept + repeats) if repeats or reordered else kept,
        early=dice.hits(Die.EARLY, webhooks.early_share),
        lost=len(planned) - len(kept),
        repeated=len(repeats),
    )


def _natural(webhooks: Webhooks, dice: Dice, failure: FailedShare | None) -> list[Step]:
    """Each status in its order; log-normal steps from one to the next."""
    steps: list[Step] = []
    at = 0.0
    delays = webhooks.delay_s
    medians = (delays.sent, delays.delivered, delays.read)
    for place, status in enumerate(_statuses(webhooks, dice, failure)):
        at += dice.around(Die.DELAY + place, medians[place], webhooks.jitter)
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


def _keep(lost_share: float, dice: Dice, steps: list[Step]) -> list[Step]:
    if not lost_share:
        return steps
    return [step for die, step in enumerate(steps, Die.LOST) if not dice.hits(die, lost_share)]


def _repeats(webhooks: Webhooks, dice: Dice, steps: list[Step]) -> list[Step]:
    if not webhooks.repeated_share:
        return []
    return [
        step._replace(
            delay=step.delay + _REPEATED_WITHIN_S * dice.uniform(Die.REPEAT_AFTER + place)
        )
        for place, step in enumerate(steps)
        if dice.hits(Die.REPEATED + place, webhooks.repeated_share)
    ]
