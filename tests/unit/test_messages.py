"""The body of a send and the reading of its reply."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.whatsapp.messages import ReplyBody, ReplyError, read_reply, template_body

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
NOTHING = ReplyBody()


def error(**fields: Any) -> ReplyBody:
    return read_reply(json.dumps({"error": fields}).encode())


def test_a_body_without_variables_has_no_components() -> None:
    template = {"name": "order_ok", "language": {"code": "en"}}

    assert json.loads(template_body("12025550123", template, "hr1:x:1:1")) == {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "to": "+12025550123",
        "type": "template",
        "template": template,
        "biz_opaque_callback_data": "hr1:x:1:1",
    }


def test_an_accepted_reply() -> None:
    body = b'{"messages":[{"id":"wamid.1","message_status":"accepted"}]}'

    assert read_reply(body) == ReplyBody("wamid.1", "accepted")


@given(st.binary())
def test_no_bytes_raise(body: bytes) -> None:
    assert isinstance(read_reply(body), ReplyBody)


@given(st.fixed_dictionaries({}, optional={"error": JSON, "messages": JSON | st.lists(JSON)}))
def test_no_json_raises_and_every_text_can_be_stored(body: dict[str, Any]) -> None:
    found = read_reply(json.dumps(body).encode())

    texts = [found.wamid, found.message_status]
    if found.error:
        texts += [found.error.details, found.error.fbtrace_id]
    for text in texts:
        assert "\0" not in (text or "")
        (text or "").encode()


@given(st.fixed_dictionaries({"code": JSON}, optional={"error_data": JSON, "message": JSON}))
def test_any_error_object_is_read_or_left(fields: dict[str, Any]) -> None:
    found = error(**fields)

    assert found.error is None or abs(found.error.code) < 1 << 31


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>502</html>",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b'{"messages":[]}',
        b'{"messages":{}}',
        b'{"messages":["w"]}',
        b'{"messages":[{}]}',
        b'{"messages":[{"id":""}]}',
        b'{"messages":[{"id":7}]}',
        b'{"error":"boom"}',
        b'{"error":[]}',
        b'{"error":{}}',
        b'{"error":{"code":null}}',
        b'{"error":{"code":true}}',
        b'{"error":{"code":"x"}}',
        b'{"error":{"code":1.5}}',
        b'{"error":{"code":' + b"9" * 30 + b"}}",
        b'{"error":{"code":"' + b"9" * 30 + b'"}}',
        b'{"error":{"code":' + b"9" * 5000 + b"}}",
        b'{"error":{"code":"' + b"9" * 5000 + b'"}}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
    ids=lambda body: body[:30].decode(errors="replace"),
)
def test_whatever_has_neither_id_nor_code_says_nothing(body: bytes) -> None:
    assert read_reply(body) == NOTHING


@pytest.mark.parametrize("code", [131008, "131008", " 131008 "])
def test_a_code_comes_as_number_or_text(code: int | str) -> None:
    assert error(code=code).error == ReplyError(131008, "", None)


def test_an_error_wins_over_an_id() -> None:
    body = b'{"messages":[{"id":"w"}],"error":{"code":100}}'

    assert read_reply(body) == ReplyBody(error=ReplyError(100, "", None))


@pytest.mark.parametrize(
    ("fields", "details"),
    [
        ({"error_data": {"details": "why"}, "message": "what"}, "why"),
        ({"error_data": "why", "message": "what"}, "why"),
        ({"error_data": {"details": 7}, "message": "what"}, "what"),
        ({"error_data": {}, "message": "what"}, "what"),
        ({"error_data": ["why"]}, ""),
        ({"message": None}, ""),
    ],
)
def test_the_most_telling_text(fields: dict[str, Any], details: str) -> None:
    assert error(code=1, **fields).error == ReplyError(1, details, None)


def test_nul_and_half_an_emoji_do_not_get_through() -> None:
    body = rb'{"error":{"code":1,"message":"a\u0000b\ud83d","fbtrace_id":"\u0000"}}'

    assert read_reply(body).error == ReplyError(1, "ab?", None)
