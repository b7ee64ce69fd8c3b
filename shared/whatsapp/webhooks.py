"""Meta's status webhook as typed structs: only the fields that are read, the rest is skipped."""

from typing import Any

import msgspec


class StatusError(msgspec.Struct, kw_only=True):
    """Why a message failed. `code` comes as text from some versions."""

    code: int | str
    title: str | None = None
    message: str | None = None
    error_data: Any = None


class StatusUpdate(msgspec.Struct, kw_only=True):
    """One step in the life of one message. `timestamp` is Unix seconds, mostly as text."""

    id: str
    status: str
    timestamp: str | int = 0
    biz_opaque_callback_data: str | None = None
    errors: list[StatusError] = []


class Metadata(msgspec.Struct, kw_only=True):
    """Which business number a change belongs to."""

    phone_number_id: str | None = None


class Change(msgspec.Struct, kw_only=True):
    """`field` names the kind; other kinds have values of other shapes, kept raw until asked for."""

    field: str = ""
    value: msgspec.Raw = msgspec.Raw(b"{}")


class Entry(msgspec.Struct, kw_only=True):
    """Everything of one WhatsApp Business account in one webhook."""

    changes: list[Change] = []


class Webhook(msgspec.Struct, kw_only=True):
    """One POST: up to a thousand updates over several entries and changes."""

    entry: list[Entry] = []
