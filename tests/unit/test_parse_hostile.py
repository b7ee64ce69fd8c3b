"""No body makes the parser raise, and nothing it makes is refused by Postgres for its form."""

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from services.ingest.parse import Parsed, parse

RECEIVED = datetime(2026, 11, 1, tzinfo=UTC)
INSTALLATION = "ab" * 16

# A small alphabet: building that of all Unicode takes seconds on a busy machine.
TEXT = st.text("a9é\0\ud83d\U0001f600", max_size=6)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXT
    | st.sampled_from(["sent", "read", "failed", "\0", "\ud83d", "messages", "9" * 30]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=6,
)


def shape(**fields: st.SearchStrategy) -> st.SearchStrategy:
    """An object of which any field may be missing or anything."""
    mixed = {name: strategy | anything for name, strategy in fields.items()}
    return st.fixed_dictionaries({}, optional=mixed)


errors = shape(code=st.integers() | TEXT, error_data=shape(details=TEXT))
statuses = shape(
    id=TEXT | st.just("x" * 600),
    status=st.sampled_from(["sent", "delivered", "read", "played", "failed", "deleted"]),
    timestamp=st.integers() | st.integers().map(str),
    biz_opaque_callback_data=st.integers().map(lambda n: f"hr1:{INSTALLATION}:{n}:{n}"),
    errors=st.lists(errors, max_size=2),
)
values = shape(metadata=shape(phone_number_id=TEXT), statuses=st.lists(statuses, max_size=3))
changes = shape(field=st.just("messages"), value=values)
webhooks = shape(entry=st.lists(shape(changes=st.lists(changes, max_size=3)), max_size=2))


def check(parsed: Parsed) -> None:
    for event in parsed.events:
        text = f"{event.wamid}{event.details}{event.phone_number_id}"
        assert "\0" not in text.encode().decode()
        assert event.wamid
        assert event.code is None or 0 <= event.code < 2**31
        assert event.at.tzinfo
        assert event.token is None or event.token.message_id < 2**63


@given(webhooks)
def test_any_json_of_about_the_shape(webhook):
    check(parse(json.dumps(webhook).encode(), RECEIVED))


@given(st.binary(max_size=200))
def test_any_bytes(body):
    parsed = parse(body, RECEIVED)
    assert parsed.poison or not parsed.events


@given(webhooks, st.data())
def test_a_body_with_a_broken_byte(webhook, data):
    body = bytearray(json.dumps(webhook, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    place = data.draw(st.integers(0, len(body) - 1))
    body[place] = data.draw(st.integers(0, 255))
    check(parse(bytes(body), RECEIVED))
