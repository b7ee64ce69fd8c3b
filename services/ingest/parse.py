"""A webhook's body to status events; never raises, whatever the body holds."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from shared.domain.status import Status
from shared.domain.tokens import Token
from shared.whatsapp.webhooks import Metadata, StatusError, StatusUpdate, Webhook

# Played is a voice message that was heard: at least read.
_STATUSES = {
    "sent": Status.SENT,
    "delivered": Status.DELIVERED,
    "read": Status.READ,
    "played": Status.READ,
    "failed": Status.FAILED,
}
# Clocks differ; a day ahead is no clock's difference but another unit or garbage.
_AHEAD = timedelta(days=1)
_LONGEST_ID = 512
_LONGEST_DETAILS = 500
_LARGEST_CODE = 2**31 - 1
_MALFORMED = (msgspec.MsgspecError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """One step in the life of one message. `raw` is its JSON, for setting it aside.

    What belongs to a person stays out of its text: an exception or a log may show it.
    """

    phone_number_id: str | None
    wamid: str = field(repr=False)
    status: Status
    at: datetime
    received_at: datetime
    token: Token | None
    code: int | None
    details: str | None = field(repr=False)
    raw: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Poison:
    """A piece that cannot be read, as a webhook body of its own."""

    received_at: datetime
    error: str
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Parsed:
    """What one body held. `others` counts what nothing is done about."""

    events: list[StatusEvent] = field(default_factory=list)
    poison: list[Poison] = field(default_factory=list)
    numbers: set[str] = field(default_factory=set)
    others: Counter[str] = field(default_factory=Counter)


class _Value(msgspec.Struct, kw_only=True):
    """The content of a change of the field `messages`, its parts still raw.

    Each status is decoded on its own, so that a bad one spoils only itself.
    """

    metadata: Metadata | None = None
    statuses: list[msgspec.Raw] = []
    messages: list[msgspec.Raw] = []
    errors: list[msgspec.Raw] = []


_WEBHOOK = msgspec.json.Decoder(Webhook)
_VALUE = msgspec.json.Decoder(_Value)
_STATUS = msgspec.json.Decoder(StatusUpdate)


def parse(body: bytes, received_at: datetime) -> Parsed:
    """Read one body. Whatever is wrong with a piece of it stays with that piece."""
    parsed = Parsed()
    try:
        values = _typed_values(body, parsed.others)
    except _MALFORMED:
        parsed.others.clear()
        values = _lenient_values(body, received_at, parsed)
    for value in values:
        _read_value(value, received_at, parsed)
    return parsed


def webhook_of(raw: bytes, phone_number_id: str | None) -> bytes:
    """One status as a webhook body of its own, so that it can be parsed again."""
    change = {
        "field": "messages",
        "value": {
            "metadata": {"phone_number_id": phone_number_id},
            "statuses": [msgspec.Raw(raw)],
        },
    }
    return msgspec.json.encode({"entry": [{"changes": [change]}]})


def _typed_values(body: bytes, others: Counter[str]) -> list[_Value]:
    values = []
    for entry in _WEBHOOK.decode(body).entry:
        for change in entry.changes:
            if change.field == "messages":
                values.append(_VALUE.decode(change.value))
            else:
                others["other_field"] += 1
    return values


def _lenient_values(body: bytes, received_at: datetime, parsed: Parsed) -> list[_Value]:
    """Walk a body that is not as documented, keeping every part that still makes sense."""
    try:
        webhook = json.loads(body.decode("utf-8", "replace"))
    except _MALFORMED as error:
        parsed.poison.append(Poison(received_at, f"not JSON: {type(error).__name__}", body))
        return []
    changes = [c for entry in _dicts(webhook, "entry") for c in _dicts(entry, "changes")]
    if not changes:
        parsed.poison.append(Poison(received_at, "no changes found", body))
    parsed.others["other_field"] += sum(change.get("field") != "messages" for change in changes)
    values = [change.get("value") for change in changes if change.get("field") == "messages"]
    if not all(_has_list(value) for value in values):
        parsed.poison.append(Poison(received_at, "statuses are not a list", body))
    return [_lenient_value(value) for value in values]


def _has_list(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("statuses", []), list)


def _lenient_value(value: Any) -> _Value:
    metadata = value.get("metadata") if isinstance(value, dict) else None
    number = metadata.get("phone_number_id") if isinstance(metadata, dict) else None
    return _Value(
        metadata=Metadata(phone_number_id=number if isinstance(number, str) else None),
        statuses=_raws(value, "statuses"),
        messages=_raws(value, "messages"),
        errors=_raws(value, "errors"),
    )


def _items(parent: Any, name: str) -> list[Any]:
    found = parent.get(name) if isinstance(parent, dict) else None
    return found if isinstance(found, list) else []


def _dicts(parent: Any, name: str) -> Iterator[dict[str, Any]]:
    return (item for item in _items(parent, name) if isinstance(item, dict))


def _raws(parent: Any, name: str) -> list[msgspec.Raw]:
    return [msgspec.Raw(json.dumps(item).encode()) for item in _items(parent, name)]


def _read_value(value: _Value, received_at: datetime, parsed: Parsed) -> None:
    number = _clean(value.metadata.phone_number_id) if value.metadata else None
    if number:
        parsed.numbers.add(number)
    if value.messages or value.errors:
        parsed.others.update(inbound=len(value.messages), value_error=len(value.errors))
    for raw in value.statuses:
        _read_status(bytes(raw), number or None, received_at, parsed)


def _read_status(raw: bytes, number: str | None, received_at: datetime, parsed: Parsed) -> None:
    try:
        update = _decode_status(raw)
    except _MALFORMED as error:
        poison = Poison(received_at, f"bad status: {error}"[:200], webhook_of(raw, number))
        parsed.poison.append(poison)
        return
    status = _STATUSES.get(update.status)
    if status is None:
        parsed.others["unknown_status"] += 1
        return
    code, details = _failure(update) if status is Status.FAILED else (None, None)
    event = StatusEvent(
        phone_number_id=number,
        wamid=update.id,
        status=status,
        at=_time(update.timestamp, received_at),
        received_at=received_at,
        token=Token.parse(update.biz_opaque_callback_data),
        code=code,
        details=details,
        raw=raw,
    )
    parsed.events.append(event)


def _decode_status(raw: bytes) -> StatusUpdate:
    try:
        update = _STATUS.decode(raw)
    except _MALFORMED:
        update = _lenient_status(json.loads(raw.decode("utf-8", "replace")))
    update.id = _clean(update.id)
    if not update.id or len(update.id) > _LONGEST_ID:
        raise ValueError("the id is empty or too long")
    return update


def _lenient_status(status: Any) -> StatusUpdate:
    """A status whose less important fields may be anything."""
    if not isinstance(status, dict):
        raise ValueError("not an object")  # noqa: TRY004  # bad data, not a bug of the caller
    found, word = status.get("id"), status.get("status")
    if not isinstance(found, str) or not isinstance(word, str):
        raise ValueError("id or status is not text")  # noqa: TRY004  # as above
    return StatusUpdate(
        id=found,
        status=word,
        timestamp=_text_or_int(status.get("timestamp"), 0),
        biz_opaque_callback_data=_text_or_none(status.get("biz_opaque_callback_data")),
        errors=[_lenient_error(error) for error in _dicts(status, "errors")],
    )


def _lenient_error(error: dict[str, Any]) -> StatusError:
    return StatusError(
        # Not 0: that is a code of Meta's.
        code=_text_or_int(error.get("code"), ""),
        title=_text_or_none(error.get("title")),
        message=_text_or_none(error.get("message")),
        error_data=error.get("error_data"),
    )


def _text_or_int(value: Any, otherwise: str | int) -> str | int:
    return value if isinstance(value, str | int) else otherwise


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _clean(text: str | None) -> str:
    """Text that Postgres takes: without NUL, and with lone surrogates replaced."""
    if not text:
        return ""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def _time(timestamp: str | int, received_at: datetime) -> datetime:
    """Meta's time of the event, or ours where Meta's makes no sense."""
    try:
        at = datetime.fromtimestamp(int(timestamp), UTC)
    except (ValueError, OverflowError, OSError):
        return received_at
    return at if at.timestamp() > 0 and at <= received_at + _AHEAD else received_at


def _failure(update: StatusUpdate) -> tuple[int | None, str | None]:
    """Code and explanation of the first error. A failure without a readable code is one still."""
    if not update.errors:
        return None, None
    error = update.errors[0]
    data = error.error_data
    details = data.get("details") if isinstance(data, dict) else None
    text = details if isinstance(details, str) else error.message or error.title
    return _code(error.code), _clean(text)[:_LONGEST_DETAILS] or None


def _code(code: str | int) -> int | None:
    try:
        number = int(code)
    except ValueError:
        return None
    return number if 0 <= number <= _LARGEST_CODE else None
