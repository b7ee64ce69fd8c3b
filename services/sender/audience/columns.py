"""Finds out from a header row which cell is what."""

from collections.abc import Mapping
from dataclasses import dataclass

from services.sender.audience.records import FileRefused
from services.sender.campaigns.template import column_key

COLUMN_LIMIT = 100
#: Names of the phone column, the most telling first.
PHONE_COLUMNS = ("phone", "phone_number", "phone number", "msisdn", "mobile", "whatsapp")
EXTERNAL_ID = "external_id"
METADATA = "metadata"
_PHONE_DIGITS = 7
NOTE = f"{METADATA}."
_LINES = "one with a column phone is needed, and line breaks (curl keeps them with --data-binary)"


@dataclass(frozen=True, slots=True)
class Columns:
    """Places of the cells; every named column that is not taken is a parameter of the template.

    A column that the template names is one too, whatever else it is. `filled`: those whose cells
    must not be empty. `metadata` is a JSON object, `notes` are single entries of it: columns named
    metadata.key.
    """

    width: int
    phone: int
    external_id: int | None
    parameters: tuple[tuple[str, int], ...]
    metadata: int | None = None
    notes: tuple[tuple[str, int], ...] = ()
    filled: tuple[tuple[str, int], ...] = ()


def read_header(cells: list[str], needed: Mapping[str, bool]) -> Columns:
    """Read the header row. Raises `FileRefused` that names the columns found.

    `needed` are the template's columns; True: of which no cell may be empty.
    """
    keys = [column_key(cell) for cell in cells]
    found = tuple(cell.strip() for cell in cells if cell.strip())
    _check(keys, found)
    phone = next((keys.index(name) for name in PHONE_COLUMNS if name in keys), None)
    if phone is None:
        raise _refused("no column is named phone", found)
    if lacking := [name for name in needed if name not in keys]:
        told = f"the template needs columns that the file lacks: {', '.join(lacking)}"
        raise _refused(told, found)
    external_id, metadata = _place(keys, EXTERNAL_ID), _place(keys, METADATA)
    notes = _notes(keys, cells)
    taken = {phone, external_id, metadata, *(place for _, place in notes)}
    named = [(key, place) for place, key in enumerate(keys) if key]
    parameters = tuple(pair for pair in named if pair[0] in needed or pair[1] not in taken)
    filled = tuple(pair for pair in named if needed.get(pair[0]))
    return Columns(len(keys), phone, external_id, parameters, metadata, notes, filled)


def _place(keys: list[str], name: str) -> int | None:
    return keys.index(name) if name in keys else None


def _notes(keys: list[str], cells: list[str]) -> tuple[tuple[str, int], ...]:
    """Entries of the metadata with their places; they are echoed, so they keep their spelling."""
    return tuple(
        (note_of(cells[place]), place)
        for place, key in enumerate(keys)
        if key.startswith(NOTE) and key != NOTE
    )


def note_of(name: str) -> str:
    """Which entry of the metadata a column or key is."""
    return name.strip()[len(NOTE) :].strip()


def _check(keys: list[str], found: tuple[str, ...]) -> None:
    if any("\0" in key or not _is_utf8(key) for key in keys):
        raise FileRefused("the header is not UTF-8 text; save the file as CSV UTF-8", 1)
    if len(keys) > COLUMN_LIMIT:
        raise FileRefused(f"{len(keys)} columns; at most {COLUMN_LIMIT} are taken", 1)
    if NOTE in keys:
        raise _refused(f"column {NOTE} does not say which entry of the metadata it is", found)
    for key in keys:
        if key and keys.count(key) > 1:
            raise _refused(f"column {key} appears twice", found)


def _refused(detail: str, found: tuple[str, ...]) -> FileRefused:
    """People in place of a header are not shown: who may see an upload may not know its people."""
    if any(sum(map(str.isdecimal, cell)) >= _PHONE_DIGITS for cell in found):
        return FileRefused(f"the first row is no header, or goes on behind it; {_LINES}", 1)
    return FileRefused(detail, 1, found)


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)
