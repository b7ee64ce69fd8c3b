"""What a send gets depends on seed and recipient, never on order; limits on time alone."""

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from services.simulator.behaviour import Ambiguous, Behaviour, Clear, Refused, Verdict
from services.simulator.scenario import AmbiguousKind, Scenario

PEOPLE = [f"+1202{n:07d}" for n in range(10_000)]
MIX: dict[str, Any] = {
    "seed": 7,
    "errors": [{"code": 131056, "share": 0.02}, {"code": 131026, "share": 0.03}],
    "ambiguous": [
        {"kind": "stall", "share": 0.02, "withhold": 0.25},
        {"kind": "html_502", "share": 0.01, "accepted": False},
    ],
}


def behaviour(**scenario: Any) -> Behaviour:
    return Behaviour(Scenario.model_validate(scenario))


def fates(scenario: dict[str, Any], people: Iterable[str]) -> dict[str, Verdict]:
    judge = behaviour(**scenario).judge
    return {to: judge("n", to, 0.0) for to in people}


def test_the_calm_scenario_accepts_everything() -> None:
    assert {type(verdict) for verdict in fates({}, PEOPLE[:100]).values()} == {Clear}


def test_order_changes_nothing() -> None:
    shuffled = random.Random(1).sample(PEOPLE, len(PEOPLE))
    assert fates(MIX, PEOPLE) == fates(MIX, shuffled)


def test_another_seed_is_another_fate() -> None:
    assert fates(MIX, PEOPLE) != fates({**MIX, "seed": 8}, PEOPLE)


def test_shares_are_kept() -> None:
    verdicts = fates(MIX, PEOPLE).values()
    codes = Counter(verdict.code for verdict in verdicts if isinstance(verdict, Refused))
    blurs = [verdict for verdict in verdicts if isinstance(verdict, Ambiguous)]
    kinds = Counter(verdict.rule.kind for verdict in blurs)
    withheld = sum(
        verdict.withheld for verdict in blurs if verdict.rule.kind is AmbiguousKind.STALL
    )
    assert codes[131056] == pytest.approx(200, abs=60)
    assert codes[131026] == pytest.approx(300, abs=70)
    assert kinds[AmbiguousKind.STALL] == pytest.approx(190, abs=60)
    assert kinds[AmbiguousKind.HTML_502] == pytest.approx(95, abs=40)
    assert withheld == pytest.approx(48, abs=25)


def test_what_was_not_accepted_never_gets_a_status() -> None:
    blurs = [v for v in fates(MIX, PEOPLE).values() if isinstance(v, Ambiguous)]
    assert all(verdict.withheld for verdict in blurs if not verdict.rule.accepted)


@pytest.mark.parametrize(("times", "refused"), [(1, 1), (3, 3), (None, 10)])
def test_a_recipient_is_refused_only_so_often(times: int | None, refused: int) -> None:
    error = {"code": 131056, "share": 1, "times_per_recipient": times}
    judge = behaviour(errors=[error]).judge
    verdicts = [judge("n", "+12025550142", 0.0) for _ in range(10)]
    assert verdicts == [Refused(131056)] * refused + [Clear()] * (10 - refused)


def test_a_failure_by_webhook_has_its_bound_too() -> None:
    failing = behaviour(webhooks={"failed": [{"code": 131049, "share": 1}]})
    met = [failing.failure(to) for to in ("a", "a", "b")]
    assert [failure and failure.code for failure in met] == [131049, None, 131049]


def test_throughput_is_a_sliding_second_per_number() -> None:
    judge = behaviour(throughput=2).judge
    verdicts = [judge("n", to, at) for to, at in [("a", 0), ("b", 0.5), ("c", 0.9), ("d", 1.0)]]
    assert verdicts == [Clear(), Clear(), Refused(130429), Clear()]
    assert judge("other", "e", 1.0) == Clear()
    assert judge("n", "f", 1.4) == Refused(130429)


def test_what_was_throttled_takes_no_room() -> None:
    judge = behaviour(throughput=1).judge
    judge("n", "a", 0.0)
    for step in range(1, 10):
        assert judge("n", "b", step / 10) == Refused(130429)
    assert judge("n", "b", 1.0) == Clear()


def test_an_episode_counts_from_the_numbers_first_request() -> None:
    judge = behaviour(throttle_episodes={"every_s": 5, "for_s": 1}).judge
    assert judge("n", "a", 100.0) == Clear()
    assert judge("m", "a", 102.0) == Clear()
    assert judge("n", "a", 104.5) == Refused(130429)
    assert judge("m", "a", 104.5) == Clear()
    assert judge("m", "a", 106.5) == Refused(130429)


def test_throttling_leaves_a_recipients_fate_unspent() -> None:
    scenario = {"throttle_episodes": {"every_s": 5, "for_s": 1}}
    judge = behaviour(**scenario, errors=[{"code": 131056, "share": 1}]).judge
    judge("n", "other", 0.0)
    assert judge("n", "a", 4.5) == Refused(130429)
    assert judge("n", "a", 5.0) == Refused(131056)
    assert judge("n", "a", 5.1) == Clear()


def test_the_pair_limit_is_off_unless_asked_for() -> None:
    calm = behaviour().judge
    assert {calm("n", "a", 0.0) for _ in range(100)} == {Clear()}
    strict = behaviour(pair_limit={}).judge
    verdicts = Counter(strict("n", "a", 0.0) for _ in range(46))
    assert verdicts == {Clear(): 45, Refused(131056): 1}


@pytest.mark.parametrize(
    ("number", "verdicts"),
    [
        ("+447400131026", [Refused(131026)] * 3),  # final: as often as it is tried
        ("447400131026", [Refused(131026)] * 3),
        (
            "+447400131056",
            [Refused(131056), Clear(), Clear()],
        ),  # to be tried again: in the end it works
        ("+447400132001", [Refused(132001), Clear(), Clear()]),  # the template's: cured by a resume
        ("+447400131050", [Refused(131050)] * 3),  # opts the person out
        ("+447400130429", [Clear()] * 3),  # the number's, and so everybody's
        ("+447400131031", [Clear()] * 3),  # the account's
        ("+447400131005", [Clear()] * 3),  # the token's
        ("+447401131026", [Clear()] * 3),
        ("+4474001310260", [Clear()] * 3),
        ("US.447400131026", [Clear()] * 3),
    ],
)
def test_magic_numbers_meet_their_code(number: str, verdicts: list[Verdict]) -> None:
    judge = behaviour().judge
    assert [judge("n", number, 0.0) for _ in verdicts] == verdicts


def test_limits_come_before_magic() -> None:
    judge = behaviour(throughput=1).judge
    assert judge("n", "+447400131056", 0.0) == Refused(131056)
    assert judge("n", "+447400131056", 0.1) == Refused(130429)
