"""Turns the objects of a JSON file into recipients, or into rejects with their reasons."""

import msgspec

from services.sender.audience.columns import COLUMN_LIMIT, EXTERNAL_ID, METADATA, PHONE_COLUMNS
from services.sender.audience.elements import ArrayCutter, Element, LineCutter
from services.sender.audience.notes import flat, pack
from services.sender.audience.records import RowRefused
from services.sender.audience.rows import RAW_LIMIT, Batch, read_external_id, storable
from services.sender.campaigns.template import column_key
from shared.domain.phones import Invalid, Phone, normalise

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_scalar = msgspec.json.Decoder(str | int | float | bool | None).decode
_encode = msgspec.json.Encoder().encode


class ObjectParser:
    """Parses objects piece by piece. It computes only, so it may run beside the event loop.

    Keys are to an object what columns are to a CSV file, and every value is text in the end.
    """

    def __init__(self, cutter: LineCutter | ArrayCutter, default_country: str | None) -> None:
        self._cutter = cutter
        self._country = default_country

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
        phone = normalise(_taken(cells, *PHONE_COLUMNS), self._country)
        if isinstance(phone, Invalid):
            raise RowRefused(phone.reason)
        external_id = read_external_id(_taken(cells, EXTERNAL_ID))
        return phone, (external_id, _encode(cells).decode(), metadata)


def _read(raw: bytes) -> tuple[dict[str, str], str | None]:
    """An object's values by their keys, and its metadata. Raises `RowRefused`."""
    try:
        members = _members(raw)
    except (msgspec.DecodeError, RecursionError):
        raise RowRefused("not a JSON object in UTF-8") from None
    if len(members) > COLUMN_LIMIT:
        raise RowRefused(f"{len(members)} keys; at most {COLUMN_LIMIT} are taken")
    cells: dict[str, str] = {}
    metadata = None
    for name, value in members.items():
        key = column_key(name)
        if key == METADATA:
            metadata = _metadata(value)
        elif key in cells:
            raise RowRefused(f"key {_told(key)} appears twice")
        elif key:
            cells[key] = _cell(key, value)
    return cells, metadata


def _metadata(value: msgspec.Raw) -> str | None:
    return None if bytes(value) == b"null" else pack(flat(value))


def _cell(key: str, value: msgspec.Raw) -> str:
    """A value as the text that a template takes: null is empty, true is true."""
    try:
        found = _scalar(value)
    except (msgspec.DecodeError, RecursionError):
        raise RowRefused(f"{_told(key)} is neither UTF-8 text nor a number") from None
    if isinstance(found, bool):
        return "true" if found else "false"
    cell = "" if found is None else str(found)
    if "\0" in key or "\0" in cell:
        raise RowRefused(f"{_told(key)} holds a NUL character")
    return cell


def _told(key: str) -> str:
    """A key in a reject: in bounds, and as Postgres can keep it."""
    return storable(key[:50])


def _taken(cells: dict[str, str], *keys: str) -> str:
    """Take out the first of these keys that is there."""
    return next((cells.pop(key) for key in keys if key in cells), "")
