"""What one exchange with Meta means, over every shape that a reply may have."""

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.sender.pipeline.classify import classify, storable
from services.sender.pipeline.outcome import Accepted, Failed, Outcome, Retry, Throttled, Unknown
from services.sender.pipeline.reply import Lost, NotSent, Reason, Replied
from shared.whatsapp.errors import ERRORS, Effect

HTML = b"<html><h1>Bad gateway</h1></html>"
PAGE = HTML.decode()
STATUSES = (200, 201, 301, 400, 401, 403, 404, 429, 499, 500, 502, 503, 504)


def replied(status: int, body: bytes) -> Outcome:
    return classify(Replied(status, body, {}))


def error(code: object, **fields: object) -> bytes:
    return json.dumps({"error": {"code": code, **fields}}).encode()


@pytest.mark.parametrize("reason", Reason)
def test_no_exchange_leaves_the_row_untouched(reason: Reason) -> None:
    assert classify(NotSent(reason)) == Throttled(reason, sent_nothing=True)


@pytest.mark.parametrize("reason", Reason)
def test_what_may_have_left_is_unknown(reason: Reason) -> None:
    assert classify(Lost(reason)) == Unknown(reason)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"messages":[{"id":"w"}]}', Accepted("w")),
        (b'{"messages":[{"id":"w","message_status":"accepted"}]}', Accepted("w")),
        (
            b'{"messages":[{"id":"w","message_status":"held_for_quality_assessment"}]}',
            Accepted("w", "held_for_quality_assessment"),
        ),
    ],
)
def test_an_id_is_an_acceptance(body: bytes, expected: Outcome) -> None:
    assert replied(200, body) == expected


@pytest.mark.parametrize("status", [301, 400, 500])
def test_an_id_under_another_status_is_none(status: int) -> None:
    assert not isinstance(replied(status, b'{"messages":[{"id":"w"}]}'), Accepted)


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (130429, Throttled("meta", 130429, Effect.SLOW_NUMBER, "why", "trace")),
        ("130429", Throttled("meta", 130429, Effect.SLOW_NUMBER, "why", "trace")),
        (190, Throttled("meta", 190, Effect.PAUSE_TOKEN, "why", "trace")),
        (10, Throttled("meta", 10, Effect.PAUSE_TOKEN, "why", "trace")),
        (230, Throttled("meta", 230, Effect.PAUSE_TOKEN, "why", "trace")),
        (131000, Retry(131000, "meta", None, "why", "trace")),
        (131049, Retry(131049, "meta", timedelta(hours=24), "why", "trace", tries=2)),
        (131026, Failed(131026, "meta", "why", "trace")),
        (131050, Failed(131050, "meta", "why", "trace", Effect.OPT_OUT)),
        (506, Unknown("meta", 506, "why", "trace")),
    ],
)
def test_a_listed_code_decides_whatever_the_status(
    status: int, code: object, expected: Outcome
) -> None:
    body = error(code, error_data={"details": "why"}, fbtrace_id="trace")

    assert replied(status, body) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, Failed(7_777_777, "meta", "")),
        (400, Failed(7_777_777, "meta", "")),
        (429, Failed(7_777_777, "meta", "")),
        (500, Unknown("meta", 7_777_777, "")),
        (503, Unknown("meta", 7_777_777, "")),
    ],
)
def test_a_code_that_is_new_is_judged_by_its_status(status: int, expected: Outcome) -> None:
    assert replied(status, error(7_777_777)) == expected


@pytest.mark.parametrize("body", [HTML, b"", b"{}", b"[1]", b'{"error":"boom"}', error("x")])
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, Unknown),
        (301, Unknown),
        (400, Failed),
        (404, Failed),
        (429, Throttled),
        (499, Failed),
        (500, Unknown),
        (502, Unknown),
        (503, Retry),
        (504, Unknown),
    ],
)
def test_without_a_code_the_status_decides(
    status: int, kind: type[Throttled | Retry | Failed | Unknown], body: bytes
) -> None:
    outcome = replied(status, body)

    assert isinstance(outcome, kind)
    assert (outcome.reason, outcome.code) == (f"http_{status}", None)
    assert outcome.details == body.decode()


def test_a_429_without_a_code_slows_the_number() -> None:
    assert replied(429, HTML) == Throttled("http_429", None, Effect.SLOW_NUMBER, PAGE)


def test_what_meta_judged_is_not_concluded_by_us() -> None:
    for body in (HTML, error(131026)):
        outcome = replied(400, body)
        assert isinstance(outcome, Failed)
        assert not outcome.concluded


@pytest.mark.parametrize("code", [2**31, -(2**31), 10**30, "9" * 40])
def test_a_code_beyond_an_int_column_is_no_code(code: object) -> None:
    assert replied(400, error(code)) == Failed(None, "http_400", error(code).decode())


@given(st.integers(100, 599), st.binary())
def test_no_reply_raises(status: int, body: bytes) -> None:
    replied(status, body)


@given(st.sampled_from(sorted(ERRORS)), st.text())
def test_details_fit_their_column(code: int, details: str) -> None:
    outcome = replied(400, error(code, message=details))

    assert not isinstance(outcome, Accepted)
    assert outcome.details is not None
    assert len(outcome.details) <= 500
    assert "\0" not in outcome.details


def test_a_long_page_is_cut() -> None:
    outcome = replied(502, b"\0" + "é".encode() * 5000)

    assert isinstance(outcome, Unknown)
    assert outcome.details == "é" * 500


def test_storable_text() -> None:
    assert storable("a\0b" + "c" * 600) == "ab" + "c" * 498
