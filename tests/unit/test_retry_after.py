"""What the headers of a reply ask for."""

import json
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.sender.pipeline.classify import classify
from services.sender.pipeline.outcome import Retry, Throttled
from services.sender.pipeline.reply import Replied
from services.sender.pipeline.retry_after import LONGEST, regain_after, retry_after
from shared.whatsapp.errors import ERRORS, Effect

NOW = datetime(2026, 10, 21, 7, 27, 30, tzinfo=UTC)


def asked(text: str) -> timedelta | None:
    return retry_after(httpx.Headers({"Retry-After": text}), NOW)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120),
        (" 120 ", 120),
        ("0", 0),
        ("0.493", 0.493),
        ("1.", 1),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 30),
        ("Wed, 21 Oct 2026 07:28:00 -0000", 30),
        ("21 Oct 2026 09:28:00 +0200", 30),
        ("Wed, 21 Oct 2026 07:00:00 GMT", 0),
        ("Wed, 21 Oct 1926 07:00:00 GMT", 0),
        ("Wed, 21 Oct 9999 07:00:00 GMT", LONGEST.total_seconds()),
        ("-5", 0),
        ("999999", LONGEST.total_seconds()),
        ("999999999999", LONGEST.total_seconds()),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("1e400", None),
        ("٣", None),
        ("9" * 400, None),
        ("Wed, 99 Oct 2026 07:28:00 GMT", None),
        ("Wed, 21 Oct 2026 07:28:00 +9999999", None),
    ],
)
def test_rl_03_whatever_retry_after_holds(text: str, seconds: float | None) -> None:
    found = retry_after({"retry-after": text}, NOW)

    assert (found.total_seconds() if found is not None else None) == seconds


def test_rl_03_no_header_at_all() -> None:
    assert retry_after({}, NOW) is None


@given(st.text())
def test_no_header_raises(text: str) -> None:
    found = retry_after({"retry-after": text}, NOW)
    regain_after({"x-business-use-case-usage": text})

    assert found is None or timedelta(0) <= found <= LONGEST


def test_rl_03_a_header_is_found_whatever_its_case() -> None:
    assert asked("7") == timedelta(seconds=7)


@pytest.mark.parametrize(
    ("usage", "minutes"),
    [
        ({"1": [{"type": "whatsapp", "estimated_time_to_regain_access": 19}]}, 19),
        ({"1": [{"estimated_time_to_regain_access": 3}, {}], "2": "x"}, 3),
        ({"1": [{"estimated_time_to_regain_access": 9000}]}, 60),
        ({"1": [{"estimated_time_to_regain_access": 0}]}, None),
        ({"1": [{"estimated_time_to_regain_access": "19"}]}, None),
        ({"1": {"estimated_time_to_regain_access": 19}}, None),
        ([], None),
        (7, None),
    ],
)
def test_the_call_limit_of_an_account_says_when_it_ends(usage: object, minutes: int | None) -> None:
    found = regain_after({"x-business-use-case-usage": json.dumps(usage)})

    assert found == (None if minutes is None else timedelta(minutes=minutes))


def refused(code: int, headers: dict[str, str], status: int = 400) -> Replied:
    return Replied(status, json.dumps({"error": {"code": code}}).encode(), headers)


def pause_of(code: int, **headers: str) -> timedelta | None:
    outcome = classify(
        refused(code, {name.replace("_", "-"): text for name, text in headers.items()})
    )
    assert isinstance(outcome, Throttled)
    return outcome.pause


def test_a_throttled_number_waits_as_long_as_it_is_asked_to() -> None:
    assert pause_of(130429, retry_after="7") == timedelta(seconds=7)
    assert pause_of(130429) is None


def test_a_header_prolongs_a_pause_and_never_ends_one() -> None:
    usage = json.dumps({"1": [{"estimated_time_to_regain_access": 19}]})

    assert pause_of(80007) == timedelta(minutes=5)
    assert pause_of(80007, retry_after="7") == timedelta(minutes=5)
    assert pause_of(80007, retry_after="600") == timedelta(minutes=10)
    assert pause_of(4, x_business_use_case_usage=usage) == timedelta(minutes=19)


@pytest.mark.parametrize(
    "code",
    [
        code
        for code, rule in ERRORS.items()
        if rule.effect is Effect.PAUSE_NUMBER and not rule.pause
    ],
)
def test_what_an_operator_must_end_does_not_end_by_a_header(code: int) -> None:
    assert pause_of(code, retry_after="7") is None


def test_without_a_code() -> None:
    page = b"<html></html>"

    throttled = classify(Replied(429, page, {"retry-after": "2"}))
    assert isinstance(throttled, Throttled)
    assert throttled.pause == timedelta(seconds=2)
    again = classify(Replied(503, page, {"retry-after": "30"}))
    assert isinstance(again, Retry)
    assert again.later == timedelta(seconds=30)
    at_once = classify(Replied(503, page, {"retry-after": "0"}))
    assert isinstance(at_once, Retry)
    assert at_once.later is None
