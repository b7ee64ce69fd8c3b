"""Turns the objects of a JSON file into recipients, or into rejects with their reasons."""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from services.sender.audience.columns import (
    COLUMN_LIMIT,
    EXTERNAL_ID,
    METADATA,
    NOTE,
    PHONE_COLUMNS,
    note_of,
)
from services.sender.audience.elements import ArrayCutter, Element, LineCutter
from services.sender.audience.notes import flat, pack
from services.sender.audience.records import RowRefused
from services.sender.audience.rows import (
    NOTHING,
    RAW_LIMIT,
    Batch,
    lacks,
    read_external_id,
    storable,
)
from services.sender.campaigns.template import column_key, is_blank
from shared.domain.phones import Invalid, Phone, normalise

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_scalar = msgspec.json.Decoder(str | int | float | bool | None).decode
_encode = msgspec.json.Encoder().encode
_pairs = json.JSONDecoder(
    object_pairs_hook=list, parse_int=str, parse_float=str, strict=False
).decode
_key_of = lru_cache(1000)(column_key)  # every row has the same few
_NULL = msgspec.Raw(b"null")


class ObjectParser:
    """Parses objects piece by piece. It computes only, so it may run beside the event loop.

    Keys are to an object what columns are to a CSV file, and every value is text in the end.
    """

    def __init__(
        self,
        cutter: LineCutter | ArrayCutter,
        default_country: str | None,
        needed: Mapping[str, bool] = NOTHING,
    ) -> None:
        self._cutter = cutter
        self._country = default_country
        self._needed = needed

    def feed(self, data: bytes, *, final: bool = False) -> Batch:
        """The rows that `data` completes. Raises `FileRefused`."""
        batch = Batch()
        for element in self._cutter.feed(data, final=final):
            self._add(element, batch)
        return batch

    def _add(self, element: Element, batch: Batch) -> None:
        raw = storable(element.raw.decode(errors="replace")[:RAW_LIMIT])
        try:
            phone, own = self._person(element.raw)
        except RowRefused as refused:
            batch.rejects.append((element.number, str(refused), raw))
        else:
            batch.recipients.append((element.number, phone.person, phone.digits, *own, raw))

    def _person(self, raw: bytes) -> tuple[Phone, tuple[str | None, str, str | None]]:
        """Whom an object names, and what it says beside the number. Raises `RowRefused`."""
        cells, metadata = _read(raw)
        phone = normalise(self._taken(cells, *PHONE_COLUMNS), self._country)
        if isinstance(phone, Invalid):
            raise RowRefused(phone.reason)
        for key, filled in self._needed.items():
            if key not in cells or (filled and is_blank(cells[key])):
                raise lacks(key)
        external_id = read_external_id(self._taken(cells, EXTERNAL_ID))
        return phone, (external_id, _encode(cells).decode(), metadata)

    def _taken(self, cells: dict[str, str], *keys: str) -> str:
        """The first of these that is there; taken out, unless the template names it."""
        key = next((key for key in keys if key in cells), None)
        if key is None:
            return ""
        return cells[key] if key in self._needed else cells.pop(key)


def _read(raw: bytes) -> tuple[dict[str, str], str | None]:
    """An object's values by their keys, and its metadata. Raises `RowRefused`."""
    try:
        members = _members(raw)
    except (msgspec.DecodeError, RecursionError):
        raise RowRefused("not a JSON object in UTF-8") from None
    if len(members) > COLUMN_LIMIT:
        raise RowRefused(f"{len(members)} keys; at most {COLUMN_LIMIT} are taken")
    # As many colons as names: then none is hidden behind another of the same spelling.
    names = _by_key(members if raw.count(b":") == len(members) else _names(raw))
    whole = members[names.pop(METADATA)] if METADATA in names else _NULL
    notes = {} if whole == _NULL else flat(whole)
    cells = {key: _cell(key, members[name]) for key, name in names.items() if key}
    for key in [key for key in cells if key.startswith(NOTE)]:
        if cell := cells.pop(key):
            notes[note_of(names[key])] = cell
    return cells, pack(notes)


def _by_key(names: Iterable[str]) -> dict[str, str]:
    """Names as they are written by what they mean. Raises `RowRefused`."""
    found: dict[str, str] = {}
    for name in names:
        key = _key_of(name)
        if key and key in found:
            raise RowRefused(f"key {_told(key)} appears twice")
        if key == NOTE:
            raise RowRefused(f"key {NOTE} does not say which entry it is")
        found[key] = name
    return found


def _names(raw: bytes) -> list[str]:
    """All names of an object, also those that are there twice. Raises `RowRefused`."""
    try:
        return [name for name, _ in _pairs(raw.decode(errors="replace"))]
    except (ValueError, RecursionError):
        raise RowRefused("not a JSON object in UTF-8") from None


def _cell(key: str, value: msgspec.Raw) -> str:
    """A value as the text that a template takes: null is empty, true is true, 10.10 is 10.10.

    A phone in a number is read by its value.
    """
    try:
        found = _scalar(value)
    except (msgspec.DecodeError, RecursionError):
        raise RowRefused(f"{_told(key)} is neither UTF-8 text nor a number") from None
    if isinstance(found, str):
        cell = found
    elif isinstance(found, bool):
        cell = "true" if found else "false"
    elif found is None or key in PHONE_COLUMNS:
        cell = "" if found is None else str(found)
    else:
        cell = bytes(value).decode()
    if "\0" in key or "\0" in cell:
        raise RowRefused(f"{_told(key)} holds a NUL character")
    return cell


def _told(key: str) -> str:
    """A key in a reject: in bounds, and as Postgres can keep it."""
    return storable(key[:50])
