"""Cuts a CSV file into records while it arrives, in constant memory."""

import codecs
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

ROW_LIMIT = 64 * 1024
_DELIMITERS = ",;\t"
_BREAKS = "a line ends in a bare CR (\\r), or this is no text; save the file as CSV UTF-8"
# What the decoder makes of either byte of a UTF-16 byte order mark.
_UTF16 = ("\udcff", "\udcfe")
# What an .xlsx begins with, and an .xls.
_WORKBOOK = ("PK\x03\x04", "\udcd0\udccf\x11\udce0")


class FileRefused(Exception):  # noqa: N818  # what happened to the file, in the words of the answer
    """The whole file is refused; `line` is where, `columns` are those that were found.

    `detail` is kept with the upload, `columns` are only answered: they may be people's names.
    """

    def __init__(self, detail: str, line: int | None = None, columns: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.line = line
        self.columns = columns


class RowRefused(ValueError):  # noqa: N818  # what happened to a row, in the words of its reject
    """A row that cannot be taken; the text is the reason."""


class _NeedsMoreError(Exception):
    """The file ends here for now, perhaps within a record."""


@dataclass(frozen=True, slots=True)
class Record:
    """`number` is what a spreadsheet shows beside the row: the header is 1, blank rows count."""

    number: int
    cells: list[str]


class RecordReader:
    """Feeds `csv.reader` with the lines that are there.

    When they end within a record (a quoted cell may hold line breaks), the reader is thrown out of
    it, and that record's lines are read again with the next ones.
    """

    def __init__(self) -> None:
        # Bytes that are not UTF-8 become lone surrogates, by which their row is known.
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
        self._rest = ""
        self._lines: list[str] = []
        self._place = 0
        self._line = 1
        self._number = 1
        self._reader: Iterator[list[str]] | None = None
        self.delimiter = ","
        #: Whether a row so far may hold what Postgres cannot store.
        self.unclean = False

    def feed(self, data: bytes, *, final: bool = False) -> list[Record]:
        """The records that `data` completes. Raises `FileRefused`."""
        self._split(self._decoder.decode(data, final), final=final)
        if self._reader is None:
            self._skip_blank()
        if not self._lines:
            return []
        self._reader = self._reader or self._open()
        records: list[Record] = []
        try:
            self._collect(self._reader, records)
        except _NeedsMoreError:
            self._check_pending(final=final)
        except csv.Error as error:
            told = _BREAKS if "new-line" in str(error) else str(error)
            raise FileRefused(f"line {self._line}: {told}", self._line) from None
        return records

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        if self._place == len(self._lines):
            raise _NeedsMoreError
        self._place += 1
        return self._lines[self._place - 1]

    def _split(self, text: str, *, final: bool) -> None:
        if self._line == 1 and text.startswith(_UTF16):
            raise FileRefused("the file is UTF-16; save it as CSV UTF-8", 1)
        if self._line == 1 and text.startswith(_WORKBOOK):
            raise FileRefused("the file is an Excel workbook; save it as CSV UTF-8", 1)
        self.unclean = self.unclean or _is_unclean(text)
        # Only at \n: `splitlines` also cuts at characters that cells may hold.
        *lines, self._rest = (self._rest + text).split("\n")
        if final and self._rest:
            lines.append(self._rest)
            self._rest = ""
        self._lines += [f"{line}\n" for line in lines]
        self._place = 0
        if len(self._rest) > ROW_LIMIT:
            raise _too_long(self._line + len(self._lines))

    def _skip_blank(self) -> None:
        """They count as rows, but do not tell what separates the cells of those that follow."""
        filled = (place for place, line in enumerate(self._lines) if line.strip())
        blank = next(filled, len(self._lines))
        del self._lines[:blank]
        self._line += blank
        self._number += blank

    def _open(self) -> Iterator[list[str]]:
        first = self._lines[0]
        self.delimiter = max(_DELIMITERS, key=first.count)
        return csv.reader(self, delimiter=self.delimiter)

    def _collect(self, reader: Iterator[list[str]], records: list[Record]) -> None:
        start = 0
        try:
            for cells in reader:
                if self._size(start) > ROW_LIMIT:
                    raise _too_long(self._line)
                records.append(Record(self._number, cells))
                self._number += 1
                self._line += self._place - start
                start = self._place
        finally:
            del self._lines[:start]

    def _size(self, start: int) -> int:
        if self._place - start == 1:
            return len(self._lines[start])
        return sum(len(line) for line in self._lines[start : self._place])

    def _check_pending(self, *, final: bool) -> None:
        """Lines that are still there belong to a record with an open quote."""
        if sum(map(len, self._lines)) > ROW_LIMIT:
            raise _too_long(self._line)
        if final and self._lines:
            raise FileRefused(f"line {self._line}: a quote is opened and never closed", self._line)


def _too_long(line: int) -> FileRefused:
    limit = ROW_LIMIT // 1024
    return FileRefused(f"line {line}: the row is longer than {limit} KiB (open quote?)", line)


def _is_unclean(text: str) -> bool:
    if "\0" in text:
        return True
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
