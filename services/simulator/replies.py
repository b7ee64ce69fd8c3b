"""What Meta answers to a send, byte for byte: the id, or an error."""

import re
import secrets
from binascii import b2a_base64
from typing import Any

import msgspec

from shared.whatsapp.errors import ERRORS

_encode = msgspec.json.Encoder().encode
_NOT_DIGITS = re.compile(r"[^0-9]+")

HTML_502 = (
    b"<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head>"
    b"<body><h1>502 Bad Gateway</h1><p>Sorry, something went wrong.</p></body></html>\n"
)
GARBAGE = b'{"messaging_product":"whatsapp","contacts":[{"inp\x00\xff'


def wamid(to: str, serial: int) -> str:
    """Unique per serial, and like Meta's it holds the digits of the person."""
    person = wa_id(to).encode()[:64]
    body = b"\x1c\x18%c%b\x15\x02\x00\x11\x18\x12%018X\x00" % (len(person), person, serial)
    return "wamid." + b2a_base64(body, newline=False).decode()


def wa_id(to: str) -> str:
    """The digits of a phone number; a business-scoped user id stays as it is."""
    digits = to.removeprefix("+")
    return digits if digits.isdecimal() or is_user_id(to) else _NOT_DIGITS.sub("", to)


def is_user_id(to: str) -> bool:
    """Such as US.1349: two letters, a dot, the rest."""
    return to[2:3] == "."


def accepted(to: str, message_id: str, *, template: bool) -> bytes:
    """The 200. Only templates carry a `message_status`."""
    person = {"user_id": to} if is_user_id(to) else {"wa_id": wa_id(to)}
    message = {"id": message_id}
    if template:
        message["message_status"] = "accepted"
    return _encode(
        {
            "messaging_product": "whatsapp",
            "contacts": [{"input": to, **person}],
            "messages": [message],
        }
    )


def refused(code: int, details: str | None = None) -> tuple[int, bytes]:
    """HTTP status and body of an error; text that is not given is the table's."""
    error = ERRORS[code]
    body = _error(code, error.title, "OAuthException")
    body["error_data"] = {"messaging_product": "whatsapp", "details": details or error.title}
    return error.http_status, _encode({"error": body})


def unknown_object(path: str) -> tuple[int, bytes]:
    """Meta's answer to a path or id that it does not know."""
    title = f"Unsupported request. Object at '{path}' does not exist or does not support this"
    body = _error(100, title, "GraphMethodException")
    body["error_subcode"] = 33
    return 400, _encode({"error": body})


def _error(code: int, title: str, kind: str) -> dict[str, Any]:
    return {
        "message": f"(#{code}) {title}",
        "type": kind,
        "code": code,
        "fbtrace_id": "A" + secrets.token_urlsafe(16),
    }
