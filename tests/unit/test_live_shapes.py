"""What a live message must look like, before anything is asked of anybody."""

from typing import Any

import pytest
from pydantic import ValidationError

from services.sender.api.messages import NewMessage

PERSON = "+12025550142"
HELLO = {"to": PERSON, "text": {"body": "x"}}
TEMPLATE = {"name": "order_ok", "language": "en"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"to": PERSON}, "exactly one content"),
        (HELLO | {"image": {"id": "1"}}, "exactly one content"),
        (HELLO | {"type": "image"}, "exactly one content"),
        ({"to": PERSON, "text": {"preview_url": True}}, "body is missing"),
        ({"to": PERSON, "text": {"body": " "}}, "body must be a text"),
        ({"to": PERSON, "text": {"body": "x" * 4097}}, "longer than 4096"),
        ({"to": PERSON, "image": {"caption": "x"}}, "id or link is missing"),
        ({"to": PERSON, "contacts": []}, "must be a list of contacts"),
        ({"to": PERSON, "location": {"latitude": 1}}, "longitude is missing"),
        (HELLO | {"to": "0171 1234567"}, "to: "),
        (HELLO | {"to": "nobody"}, "to: phone malformed"),
        (HELLO | {"max_wait_ms": 10_001}, "less than or equal to 10000"),
        (HELLO | {"recipient": "x"}, "Extra inputs"),
        (
            {
                "to": PERSON,
                "template": TEMPLATE | {"components": [{"type": "body", "text": "{{name}}"}]},
            },
            "values in place of",
        ),
    ],
)
def test_what_cannot_be_sent_is_refused_by_name(body: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        NewMessage.model_validate(body)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("text", {"body": "x" * 4096}),
        ("image", {"id": "1", "caption": "x"}),
        ("document", {"link": "https://example.org/a.pdf", "filename": "a.pdf"}),
        ("location", {"latitude": 0, "longitude": 0}),
        ("contacts", [{"name": {"formatted_name": "A"}}]),
        ("reaction", {"message_id": "wamid.1", "emoji": ""}),
        ("interactive", {"type": "button", "body": {"text": "x"}, "action": {"buttons": []}}),
        ("template", TEMPLATE),
    ],
)
def test_each_kind_is_taken_with_or_without_its_name(kind: str, content: Any) -> None:
    body = {"to": "0044 7400 123456", kind: content}

    for told in (body, body | {"type": kind}):
        message = NewMessage.model_validate(told)
        assert message.kind == kind
        assert message.phone().digits == "447400123456"
