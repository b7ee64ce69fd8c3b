"""Turns a file's records into recipients, or into rejects with their reasons."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from services.sender.audience.columns import EXTERNAL_ID, Columns, read_header
from services.sender.audience.notes import read_metadata
from services.sender.audience.records import FileRefused, Record, RecordReader, RowRefused
from services.sender.campaigns.template import is_blank
from shared.domain.phones import MISSING, Invalid, normalise

_encode = msgspec.json.Encoder().encode
RAW_LIMIT = 500
# An index holds it, whose entries have 2,700 bytes at most.
EXTERNAL_ID_LIMIT = 255

#: What a template without variables needs.
NOTHING: Mapping[str, bool] = MappingProxyType({})

#: row number, person, phone, external id, parameters and metadata as JSON, the row as it came.
Recipient = tuple[int, str, str, str | None, str, str | None, str]
#: row number, reason, the row as it came.
Reject = tuple[int, str, str]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one piece of a file holds."""

    recipients: list[Recipient] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)


class RowParser:
    """Parses a CSV file piece by piece. It computes only, so it may run beside the event loop.

    `needed` are the template's columns; True: of which no cell may be empty.
    """

    def __init__(self, default_country: str | None, needed: Mapping[str, bool] = NOTHING) -> None:
        self._reader = RecordReader()
        self._country = default_country
        self._needed = needed
        self._columns: Columns | None = None
        self._rows = 0

    def feed(self, data: bytes, *, final: bool = False) -> Batch:
        """The rows that `data` completes. Raises `FileRefused`."""
        batch = Batch()
        for record in self._reader.feed(data, final=final):
            if self._columns is None:
                self._columns = self._header(record)
            elif any(record.cells):
                self._add(record, self._columns, batch)
        self._rows += len(batch.recipients) + len(batch.rejects)
        if final and self._columns is None:
            raise FileRefused("the file is empty: a header row with a column phone is needed")
        if final and not self._rows:
            hint = "without line breaks it has none (curl keeps them with --data-binary)"
            raise FileRefused(f"the file has a header and no rows; {hint}")
        return batch

    def _header(self, record: Record) -> Columns | None:
        return read_header(record.cells, self._needed) if any(record.cells) else None

    def _add(self, record: Record, columns: Columns, batch: Batch) -> None:
        cells = record.cells
        raw = self._reader.delimiter.join(cells)[:RAW_LIMIT]
        reason = self._unusable(cells, columns)
        if reason:
            batch.rejects.append((record.number, reason, storable(raw)))
            return
        phone = normalise(cells[columns.phone], self._country)
        if not isinstance(phone, Invalid):
            try:
                own = _own(cells, columns)
            except RowRefused as refused:
                batch.rejects.append((record.number, str(refused), raw))
            else:
                batch.recipients.append((record.number, phone.person, phone.digits, *own, raw))
        elif phone is not MISSING or "".join(cells).strip():
            batch.rejects.append((record.number, phone.reason, raw))

    def _unusable(self, cells: list[str], columns: Columns) -> str | None:
        """Fills up a short row: spreadsheets leave out empty cells at the end."""
        surplus = len(cells) - columns.width
        if surplus > 0 and any(cells[columns.width :]):
            return "more cells than columns"
        if surplus < 0:
            cells += [""] * -surplus
        if self._reader.unclean and any(map(_is_unstorable, cells)):
            return "not UTF-8 text"
        return None


def _own(cells: list[str], columns: Columns) -> tuple[str | None, str, str | None]:
    """What a row says beside its number: external id, parameters, metadata.

    Raises `RowRefused`.
    """
    for key, at in columns.filled:
        if is_blank(cells[at]):
            raise lacks(key)
    place = columns.external_id
    external_id = read_external_id(cells[place]) if place is not None else None
    parameters = _encode({key: cells[at] for key, at in columns.parameters}).decode()
    return external_id, parameters, read_metadata(cells, columns)


def lacks(key: str) -> RowRefused:
    """Meta refuses an empty text, and once taken a recipient never changes."""
    return RowRefused(f"no value for {key}")


def read_external_id(cell: str) -> str | None:
    """The caller's name for a row, None when it has none. Raises `RowRefused`."""
    found = cell.strip()
    if len(found) > EXTERNAL_ID_LIMIT:
        raise RowRefused(f"{EXTERNAL_ID} is longer than {EXTERNAL_ID_LIMIT} characters")
    return found or None


def _is_unstorable(text: str) -> bool:
    return "\0" in text or storable(text) != text


def storable(text: str) -> str:
    """The text with what Postgres cannot store replaced."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()
