"""The send call: the body that goes out and what can be read from the reply."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class ReplyError:
    """Meta's error object, reduced to what is stored: never its translated title."""

    code: int
    details: str
    fbtrace_id: str | None
    subcode: int | None = None


@dataclass(frozen=True, slots=True)
class ReplyBody:
    """What a reply's body holds: an error, an id, or neither (then nobody knows)."""

    wamid: str | None = None
    message_status: str | None = None
    error: ReplyError | None = None


def template_body(phone: str, template: Mapping[str, Any], token: str) -> bytes:
    """JSON body of one template message.

    `phone` is digits; the wire gets a plus before them, since Meta may take bare digits for a
    national number of the sender's country. A template without variables has no `components`.
    """
    return _encode(
        {
            "messaging_product": "whatsapp",
            "recipient_type": "individual",
            "to": f"+{phone}",
            "type": "template",
            "template": template,
            "biz_opaque_callback_data": token,
        }
    )


def read_reply(body: bytes) -> ReplyBody:
    """Read a reply of any shape: JSON, HTML, empty. Never raises."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return ReplyBody()
    if not isinstance(parsed, dict):
        return ReplyBody()
    error = _read_error(parsed.get("error"))
    if error is not None:
        return ReplyBody(error=error)
    message = _first(parsed.get("messages"))
    return ReplyBody(_text(message.get("id")), _text(message.get("message_status")))


def _read_error(error: Any) -> ReplyError | None:
    if not isinstance(error, dict):
        return None
    code = _code(error.get("code"))
    if code is None:
        return None
    trace, subcode = _text(error.get("fbtrace_id")), _code(error.get("error_subcode"))
    return ReplyError(code, _details(error), trace, subcode)


def _code(value: Any) -> int | None:
    """Codes come as numbers, and from some versions as text."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        code = int(value)
    except ValueError:
        return None
    return code if abs(code) < 1 << 31 else None


def _details(error: dict[str, Any]) -> str:
    """The most telling text: `error_data` is an object in some replies and text in others."""
    data = error.get("error_data")
    found = data.get("details") if isinstance(data, dict) else data
    return _text(found) or _text(error.get("message")) or ""


def _first(messages: Any) -> dict[str, Any]:
    if isinstance(messages, list) and messages and isinstance(messages[0], dict):
        return cast("dict[str, Any]", messages[0])
    return {}


def _text(value: Any) -> str | None:
    """Text that Postgres can hold: JSON may smuggle in NUL and half surrogates."""
    if not isinstance(value, str):
        return None
    return value.replace("\0", "").encode(errors="replace").decode() or None
