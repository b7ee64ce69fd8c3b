"""The body of one message of a conversation: a template, or what Meta takes within its window."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode

#: Longest text of a message.
TEXT_LIMIT = 4096


class Kind(StrEnum):
    """What a message may be. Its content stands under a key of the same name."""

    TEMPLATE = "template"
    TEXT = "text"
    IMAGE = "image"
    VIDEO = "video"
    AUDIO = "audio"
    DOCUMENT = "document"
    STICKER = "sticker"
    LOCATION = "location"
    CONTACTS = "contacts"
    INTERACTIVE = "interactive"
    REACTION = "reaction"


# What each cannot do without; one of several where a value may come in two ways.
_NEEDED: Mapping[Kind, tuple[tuple[str, ...], ...]] = {
    Kind.TEXT: (("body",),),
    Kind.IMAGE: (("id", "link"),),
    Kind.VIDEO: (("id", "link"),),
    Kind.AUDIO: (("id", "link"),),
    Kind.DOCUMENT: (("id", "link"),),
    Kind.STICKER: (("id", "link"),),
    Kind.LOCATION: (("latitude",), ("longitude",)),
    Kind.INTERACTIVE: (("type",), ("action",)),
    Kind.REACTION: (("message_id",), ("emoji",)),
}


def lacks(kind: Kind, content: Any) -> str | None:
    """What is wrong with the shape of a content, if anything: the rest is Meta's to judge."""
    if kind is Kind.CONTACTS:
        return None if isinstance(content, list) and content else "must be a list of contacts"
    if not isinstance(content, dict):
        return "must be an object"
    for names in _NEEDED.get(kind, ()):
        if all(content.get(name) is None for name in names):
            return f"{' or '.join(names)} is missing"
    return _text_problem(content["body"]) if kind is Kind.TEXT else None


def _text_problem(body: Any) -> str | None:
    if not isinstance(body, str) or not body.strip():
        return "body must be a text"
    return f"body is longer than {TEXT_LIMIT} characters" if len(body) > TEXT_LIMIT else None


def live_body(phone: str, kind: Kind, content: Any, reply_to: str | None, token: str) -> bytes:
    """JSON body of one message; `phone` is digits, `reply_to` the wamid that it quotes."""
    return _encode(
        {
            "messaging_product": "whatsapp",
            "recipient_type": "individual",
            "to": f"+{phone}",
            "type": kind,
            kind.value: content,
            **({"context": {"message_id": reply_to}} if reply_to else {}),
            "biz_opaque_callback_data": token,
        }
    )
