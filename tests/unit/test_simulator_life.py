"""The statuses of an accepted message: natural, late, twice, swapped, lost, but never all lost
where they are the only proof."""

from itertools import pairwise
from typing import Any

import pytest

from services.simulator.dice import Dice, Die
from services.simulator.life import Life, live
from services.simulator.scenario import FailedShare, Webhooks

KEYS = [f"{n}:1" for n in range(4_000)]
ORDER = ["sent", "delivered", "read"]


def lives(
    failure: FailedShare | None = None, *, certain: bool = False, **webhooks: Any
) -> list[Life]:
    made = Webhooks.model_validate({"read_share": 1, **webhooks})
    return [live(made, Dice(1, key), failure, certain=certain) for key in KEYS]


def statuses(life: Life) -> list[str]:
    return [step.status for step in life.steps]


def test_a_calm_life_goes_up_in_order() -> None:
    for life in lives():
        assert statuses(life) == ORDER
        assert all(one.delay < other.delay for one, other in pairwise(life.steps))
        assert [step.delay for step in life.steps] == [step.happened for step in life.steps]
        assert (life.lost, life.repeated, life.early) == (0, 0, False)


def test_delays_lie_around_their_medians() -> None:
    delays = sorted(life.steps[0].delay for life in lives(delay_s={"sent": 2.0}, jitter=0.5))
    assert delays[len(delays) // 2] == pytest.approx(2.0, rel=0.1)
    assert delays[0] < 1
    assert delays[-1] > 4
    assert {life.steps[0].delay for life in lives(delay_s={"sent": 2.0}, jitter=0)} == {2.0}


def test_only_the_share_is_read() -> None:
    read = sum("read" in statuses(life) for life in lives(read_share=0.25))
    assert read == pytest.approx(1_000, abs=120)


def test_a_failure_comes_at_once_or_after_sent() -> None:
    at_once = FailedShare(code=131026, share=1)
    later = FailedShare(code=131026, share=1, after_sent=True)
    assert {tuple(statuses(life)) for life in lives(at_once)} == {("failed",)}
    assert {tuple(statuses(life)) for life in lives(later)} == {("sent", "failed")}


def test_reordered_statuses_come_latest_first_and_never_before_they_happened() -> None:
    for life in lives(reorder_share=1):
        assert statuses(life) == ORDER[::-1]
        assert all(step.delay >= step.happened for step in life.steps)
        happened = {step.status: step.happened for step in life.steps}
        assert happened["sent"] < happened["delivered"] < happened["read"]


def test_a_share_of_statuses_is_lost() -> None:
    made = lives(lost_share=0.1)
    assert sum(life.lost for life in made) == pytest.approx(1_200, abs=130)
    assert all(len(life.steps) + life.lost == 3 for life in made)


def test_proof_is_never_lost_whole() -> None:
    assert {len(life.steps) for life in lives(lost_share=1)} == {0}
    assert {tuple(statuses(life)) for life in lives(lost_share=1, certain=True)} == {("read",)}
    assert all(life.steps for life in lives(lost_share=0.7, certain=True))


def test_a_repeated_status_comes_again_later() -> None:
    for life in lives(repeated_share=1):
        assert life.repeated == 3
        assert sorted(statuses(life)) == sorted(ORDER * 2)
        for status in ORDER:
            first, second = [step for step in life.steps if step.status == status]
            assert first.delay < second.delay
            assert first.happened == second.happened


def test_what_is_lost_is_not_repeated() -> None:
    for life in lives(lost_share=0.5, repeated_share=1):
        assert len(life.steps) == 2 * (3 - life.lost)


def test_dice_fall_alike_for_one_key_and_seed_and_else_not() -> None:
    assert Dice(1, "a").uniform(Die.LOST) == Dice(1, "a").uniform(Die.LOST)
    assert len({Dice(seed, "a").uniform(Die.LOST) for seed in range(20)}) == 20
    assert len({Dice(1, str(key)).uniform(Die.LOST) for key in range(20)}) == 20


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_share_of_keys_is_hit(share: float) -> None:
    hits = sum(Dice(1, key).hits(Die.EARLY, share) for key in KEYS)
    assert hits == pytest.approx(share * len(KEYS), abs=120 * (0 < share < 1))
