"""A send as it arrives: as strict as Meta, since a lenient simulator hides faults of the sender."""

import re

import msgspec

#: The routes that send, and what Meta bills a message there as.
CATEGORIES = {"messages": "marketing", "marketing_messages": "marketing_lite"}

_LONGEST_TOKEN = 512
_PHONE = re.compile(r"\+?[0-9][0-9 ()-]{5,24}", re.ASCII)
_USER_ID = re.compile(r"[A-Z]{2}\.[A-Za-z0-9.]{1,140}", re.ASCII)


class InvalidSendError(Exception):
    """Meta's code for what is wrong, and a detail without any of the content."""

    def __init__(self, code: int, details: str) -> None:
        super().__init__(code)
        self.code = code
        self.details = details


class _Language(msgspec.Struct):
    code: str


class _Template(msgspec.Struct):
    name: str
    language: _Language


class _Body(msgspec.Struct):
    messaging_product: str
    to: str | None = None
    recipient: str | None = None
    type: str = "text"
    template: _Template | None = None
    biz_opaque_callback_data: str | None = None


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message to one person."""

    number: str
    to: str
    token: str | None
    template: bool
    category: str

    @property
    def fate(self) -> str:
        """Key of what happens after acceptance.

        Without the token's first two parts (format and installation), so that the same messages
        meet the same fate on a fresh database.
        """
        return (self.token or self.to).split(":", 2)[-1]


_decode = msgspec.json.Decoder(_Body).decode


def read(number: str, edge: str, content: bytes) -> Message:
    """Read a body, or raise `InvalidSendError`."""
    try:
        body = _decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidSendError(100, "The body is not the JSON of a message.") from None
    _check(body)
    return Message(
        number=number,
        to=_address(body),
        token=body.biz_opaque_callback_data,
        template=body.type == "template",
        category=CATEGORIES[edge],
    )


def _check(body: _Body) -> None:
    if body.messaging_product != "whatsapp":
        raise InvalidSendError(100, "messaging_product must be whatsapp.")
    if body.type == "template" and body.template is None:
        raise InvalidSendError(131008, "The parameter template is required.")
    if len(body.biz_opaque_callback_data or "") > _LONGEST_TOKEN:
        raise InvalidSendError(100, "biz_opaque_callback_data is too long.")


def _address(body: _Body) -> str:
    """`to` wins over `recipient`."""
    if body.to is None and body.recipient is None:
        raise InvalidSendError(100, "The parameter to is required.")
    if body.to is not None:
        return _valid(_PHONE, body.to)
    return _valid(_USER_ID, body.recipient or "")


def _valid(shape: re.Pattern[str], address: str) -> str:
    if not shape.fullmatch(address):
        raise InvalidSendError(131009, "The recipient is not valid.")
    return address
