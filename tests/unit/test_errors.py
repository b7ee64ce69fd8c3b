"""The table of Meta's codes."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.status import Status
from shared.whatsapp.errors import (
    ERRORS,
    Effect,
    OutcomeKind,
    is_personal,
    rule_for,
    rule_for_webhook,
)

ANY_STATUS = st.integers(100, 599)


@given(st.sampled_from(sorted(ERRORS)), ANY_STATUS)
def test_a_listed_code_decides_whatever_the_status(code: int, http_status: int) -> None:
    assert rule_for(code, http_status) is ERRORS[code]
    assert ERRORS[code].code == code


@given(st.integers(200, 299), ANY_STATUS)
def test_every_permission_code_pauses_the_token(code: int, http_status: int) -> None:
    rule = rule_for(code, http_status)

    assert (rule.outcome, rule.effect) == (OutcomeKind.THROTTLED, Effect.PAUSE_TOKEN)


@pytest.mark.parametrize(
    ("http_status", "kind"),
    [
        (200, OutcomeKind.FAILED),
        (400, OutcomeKind.FAILED),
        (429, OutcomeKind.FAILED),
        (499, OutcomeKind.FAILED),
        (500, OutcomeKind.UNKNOWN),
        (503, OutcomeKind.UNKNOWN),
    ],
)
def test_an_unlisted_code_is_judged_by_its_status(http_status: int, kind: OutcomeKind) -> None:
    rule = rule_for(999_999, http_status)

    assert (rule.code, rule.http_status) == (999_999, http_status)
    assert (rule.outcome, rule.effect, rule.later) == (kind, Effect.NONE, None)


def test_what_is_no_fault_of_the_recipient_spends_nothing() -> None:
    """An effect on number, campaign, account or token leaves the row untouched."""
    wide = {rule for rule in ERRORS.values() if rule.effect not in {Effect.NONE, Effect.OPT_OUT}}

    assert {rule.outcome for rule in wide} == {OutcomeKind.THROTTLED}
    assert not [
        rule
        for rule in ERRORS.values()
        if rule.outcome is OutcomeKind.THROTTLED and rule.effect is Effect.NONE
    ]


@pytest.mark.parametrize(
    ("code", "outcome", "effect"),
    [
        (130429, OutcomeKind.THROTTLED, Effect.SLOW_NUMBER),
        (190, OutcomeKind.THROTTLED, Effect.PAUSE_TOKEN),
        (368, OutcomeKind.THROTTLED, Effect.PAUSE_ACCOUNT),
        (132001, OutcomeKind.THROTTLED, Effect.PAUSE_CAMPAIGN),
        (131048, OutcomeKind.THROTTLED, Effect.PAUSE_NUMBER),
        (131050, OutcomeKind.FAILED, Effect.OPT_OUT),
        (131026, OutcomeKind.FAILED, Effect.NONE),
        (131008, OutcomeKind.FAILED, Effect.NONE),
        (131000, OutcomeKind.RETRY, Effect.NONE),
        (131016, OutcomeKind.RETRY, Effect.NONE),
        (506, OutcomeKind.UNKNOWN, Effect.NONE),
    ],
)
def test_codes_that_much_rests_on(code: int, outcome: OutcomeKind, effect: Effect) -> None:
    rule = ERRORS[code]

    assert (rule.outcome, rule.effect) == (outcome, effect)


@pytest.mark.parametrize(
    ("code", "later"), [(131049, timedelta(hours=24)), (131056, timedelta(seconds=6))]
)
def test_codes_that_ask_for_a_time(code: int, later: timedelta) -> None:
    assert ERRORS[code].later == later


def test_only_a_paused_number_has_an_end_and_only_a_retry_a_time() -> None:
    numbers = {
        Effect.PAUSE_NUMBER,
        Effect.PAUSE_NUMBERS_OF_ACCOUNT,
        Effect.PAUSE_NUMBERS_OF_TOKEN,
    }
    for rule in ERRORS.values():
        assert rule.pause is None or rule.effect in numbers
        assert rule.later is None or rule.outcome is OutcomeKind.RETRY
        assert rule.tries is None or rule.outcome is OutcomeKind.RETRY


def test_what_is_about_one_person_stops_nobody_else() -> None:
    """A breaker does not count these, so they must not be what a broken campaign meets."""
    personal = {131021, 131026, 131049, 131050, 131056, 130403, 130472, 137000}

    assert {code for code, rule in ERRORS.items() if rule.personal} == personal
    assert all(is_personal(code) for code in personal)
    assert not is_personal(999_999)


def test_a_wrong_object_is_the_number_and_no_wrong_parameter() -> None:
    rule = rule_for(100, 400, subcode=33)

    assert (rule.code, rule.outcome, rule.effect) == (
        100,
        OutcomeKind.THROTTLED,
        Effect.PAUSE_NUMBER,
    )
    assert rule_for(100, 400, subcode=34) is rule_for(100, 400) is ERRORS[100]


@given(st.sampled_from(sorted(ERRORS)))
def test_a_webhook_means_what_a_reply_means_but_for_what_was_held(code: int) -> None:
    rule = rule_for_webhook(code)

    if code not in {132015, 135000}:
        assert rule is ERRORS[code]
    else:
        assert rule.outcome is OutcomeKind.FAILED
        assert rule.effect in {Effect.PAUSE_CAMPAIGN, Effect.PAUSE_PORTFOLIO}


def test_the_life_of_a_message_in_order() -> None:
    words = "skipped pending claimed unknown accepted sent failed delivered read"

    assert " ".join(Status) == words
    assert [status.rank for status in Status] == list(range(9))
