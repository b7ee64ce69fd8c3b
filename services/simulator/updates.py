"""Meta's status webhook, byte for byte."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from services.simulator.ledger import Acceptance
from services.simulator.replies import is_user_id, wa_id
from services.simulator.request import CATEGORIES
from shared.whatsapp.errors import ERRORS

_HELP = "https://developers.facebook.com/docs/whatsapp/cloud-api/support/error-codes/"
_ORIGIN = {"type": "marketing"}
_PRICING = {
    category: {"billable": True, "pricing_model": "PMP", "type": "regular", "category": category}
    for category in CATEGORIES.values()
}
_encode = msgspec.json.Encoder().encode


class Update(NamedTuple):
    """One status of one message, and when it happened (Unix seconds).

    Those that wait share their message's id; kept in the ledger it would cost a third more memory.
    """

    message: Acceptance
    wamid: str
    status: str
    happened: int


class _Status(msgspec.Struct, omit_defaults=True, gc=False):
    id: str
    status: str
    timestamp: str
    recipient_id: str | None = None
    recipient_user_id: str | None = None
    biz_opaque_callback_data: str | None = None
    conversation: dict[str, Any] | None = None
    pricing: dict[str, Any] | None = None
    errors: list[dict[str, Any]] | None = None


def webhook(waba_id: str, number: str, updates: Sequence[Update], *, bare_failures: bool) -> bytes:
    """Body of one POST. Slashes are escaped, as Meta does: who signs a re-encoded body is caught.

    `bare_failures` leaves the token out of failures, except where it is all the sender has.
    """
    value = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": number, "phone_number_id": number},
        "statuses": [_status(update, bare_failures=bare_failures) for update in updates],
    }
    entry = {"id": waba_id, "changes": [{"field": "messages", "value": value}]}
    body = _encode({"object": "whatsapp_business_account", "entry": [entry]})
    return body.replace(b"/", b"\\/")


def _status(update: Update, *, bare_failures: bool) -> _Status:
    message, wamid, status, happened = update
    shown = _Status(wamid, status, str(happened))
    if is_user_id(message.to):
        shown.recipient_user_id = message.to
    else:
        shown.recipient_id = wa_id(message.to)
    if status != "failed" or not bare_failures or message.answer != "200":
        shown.biz_opaque_callback_data = message.token
    if status == "failed":
        shown.errors = [_error(message.failure or 0)]
    elif status != "read":
        _price(shown, message)
    return shown


def _price(shown: _Status, message: Acceptance) -> None:
    shown.conversation = {"id": f"{message.serial:032x}", "origin": _ORIGIN}
    shown.pricing = _PRICING[message.category]


def _error(code: int) -> dict[str, Any]:
    title = ERRORS[code].title
    return {
        "code": code,
        "title": title,
        "message": title,
        "error_data": {"details": title},
        "href": _HELP,
    }
