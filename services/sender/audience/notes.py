"""The caller's own words about a recipient: kept and echoed, never sent."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.sender.audience.columns import Columns
from services.sender.audience.records import RowRefused

METADATA_LIMIT = 1024

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, str | int | float | bool | None]).decode


def read_metadata(cells: list[str], columns: Columns) -> str | None:
    """A row's metadata as JSON, None when it has none. Raises `RowRefused`."""
    if columns.metadata is None and not columns.notes:
        return None
    notes = _object(cells, columns.metadata)
    return pack(notes | {key: cells[place] for key, place in columns.notes if cells[place]})


def pack(notes: Mapping[str, Any]) -> str | None:
    """Notes as they are kept, None when there are none. Raises `RowRefused`."""
    if not notes:
        return None
    text = _encode(notes)
    if len(text) > METADATA_LIMIT:
        raise RowRefused(f"metadata is larger than {METADATA_LIMIT} bytes")
    return text.decode()


def _object(cells: list[str], place: int | None) -> dict[str, Any]:
    """The cell of the column `metadata`: a flat JSON object, or empty."""
    text = cells[place].strip() if place is not None else ""
    return flat(text) if text else {}


def flat(text: str | bytes | msgspec.Raw) -> dict[str, Any]:
    """A flat JSON object. Raises `RowRefused`."""
    try:
        found = _decode(text)
    except msgspec.DecodeError:
        raise RowRefused("metadata is not a flat JSON object") from None
    if _holds_nul(found):
        raise RowRefused("metadata holds a NUL character")
    return found


def _holds_nul(notes: Mapping[str, Any]) -> bool:
    """JSON can write what Postgres cannot store."""
    return any("\0" in key or "\0" in str(value) for key, value in notes.items())
