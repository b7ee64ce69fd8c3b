"""Cuts a JSON file, lines or an array, into its elements while it arrives, in constant memory."""

import codecs
import json
import re
from dataclasses import dataclass
from enum import Enum, auto

from services.sender.audience.records import ROW_LIMIT, FileRefused

ARRAY_LIMIT = 100 * 1024 * 1024
_KIB = ROW_LIMIT // 1024
_SPACE = re.compile(r"[ \t\r\n]*")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

_end_of_value = json.JSONDecoder().raw_decode


class FileTooLarge(FileRefused):
    """The file is longer than its format may be."""


@dataclass(frozen=True, slots=True)
class Element:
    """One recipient's JSON text, not yet looked into; `number` is its line, or place from 1 on."""

    number: int
    raw: bytes


class LineCutter:
    """One element a line. Blank lines are none, but count."""

    def __init__(self) -> None:
        self._rest = b""
        self._number = 0
        self._empty = True

    def feed(self, data: bytes, *, final: bool = False) -> list[Element]:
        """The elements that `data` completes. Raises `FileRefused`."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if final:
            lines.append(self._rest)
            self._rest = b""
        if lines and self._number == 0:
            lines[0] = _first(lines[0])
        elements = [one for one in map(self._element, lines) if one.raw]
        if len(self._rest) > ROW_LIMIT:
            raise _long_line(self._number + 1)
        self._empty = self._empty and not elements
        if final and self._empty:
            raise FileRefused("the file is empty: it takes one JSON object per line")
        return elements

    def _element(self, line: bytes) -> Element:
        self._number += 1
        if len(line) > ROW_LIMIT:
            raise _long_line(self._number)
        return Element(self._number, line.strip())


def _first(line: bytes) -> bytes:
    if line.startswith(_UTF16):
        raise FileRefused("the file is UTF-16; save it as UTF-8", 1)
    line = line.removeprefix(codecs.BOM_UTF8)
    if line.lstrip().startswith(b"["):
        raise FileRefused("a JSON array is application/json; this type takes an object a line", 1)
    return line


def _long_line(number: int) -> FileRefused:
    return FileRefused(f"line {number}: the row is longer than {_KIB} KiB", number)


class _Place(Enum):
    BEFORE = auto()
    FIRST = auto()
    NEXT = auto()
    AFTER = auto()


class ArrayCutter:
    """The elements of one array.

    A value is there when what follows it is: until then a text that is no value may become one,
    so a mistake is told when the longest row there may be has come.
    """

    def __init__(self) -> None:
        # Bytes that are not UTF-8 become lone surrogates, and themselves again in their element.
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
        self._text = ""
        self._at = 0
        self._size = 0
        self._number = 1
        self._place = _Place.BEFORE

    def feed(self, data: bytes, *, final: bool = False) -> list[Element]:
        """The elements that `data` completes. Raises `FileRefused`."""
        self._size += len(data)
        if self._size > ARRAY_LIMIT:
            limit = f"{ARRAY_LIMIT >> 20} MiB"
            raise FileTooLarge(f"a JSON array may have {limit}; application/x-ndjson has no limit")
        self._text = self._text[self._at :] + self._decoder.decode(data, final)
        self._at = 0
        elements: list[Element] = []
        while (element := self._next()) is not None:
            elements.append(element)
        self._check_pending(final=final)
        return elements

    def _next(self) -> Element | None:
        """The next element, None when it is not there as a whole."""
        self._open()
        if self._place in (_Place.BEFORE, _Place.AFTER) or self._at == len(self._text):
            return None
        end = self._value_end()
        following = self._skip_space(end)
        if following == len(self._text):
            return None
        element = Element(self._number, self._text[self._at : end].encode(errors="surrogateescape"))
        self._number += 1
        self._at = following
        self._separate()
        return element

    def _open(self) -> None:
        """Pass by what stands before a value, and the end of the array."""
        self._at = self._skip_space(self._at)
        mark = self._text[self._at : self._at + 1]
        if self._place is _Place.BEFORE and mark:
            if mark != "[":
                detail = "it does not begin with [; an object a line is application/x-ndjson"
                raise FileRefused(f"the file is no JSON array: {detail}")
            self._place = _Place.FIRST
            self._at = self._skip_space(self._at + 1)
            mark = self._text[self._at : self._at + 1]
        if self._place is _Place.FIRST and mark == "]":
            self._separate()

    def _separate(self) -> None:
        mark = self._text[self._at]
        if mark not in ",]":
            raise FileRefused(f"item {self._number - 1} is not followed by a comma or a bracket")
        self._place = _Place.NEXT if mark == "," else _Place.AFTER
        self._at = self._skip_space(self._at + 1)

    def _value_end(self) -> int:
        """Where the value ends: at the end of what is there when it goes on, or is none."""
        try:
            _, end = _end_of_value(self._text, self._at)
        except RecursionError:
            raise FileRefused(f"item {self._number} is nested too deeply") from None
        except ValueError:
            return len(self._text)
        if end - self._at > ROW_LIMIT:
            raise FileRefused(f"item {self._number} is longer than {_KIB} KiB")
        return end

    def _check_pending(self, *, final: bool) -> None:
        pending = len(self._text) - self._at
        if self._place is _Place.AFTER and pending:
            raise FileRefused("something follows the end of the JSON array")
        if pending > ROW_LIMIT:
            raise FileRefused(f"item {self._number} is no JSON, or longer than {_KIB} KiB")
        if final and self._place is _Place.BEFORE:
            raise FileRefused("the file is empty: it takes a JSON array of objects")
        if final and self._place is not _Place.AFTER:
            raise FileRefused(f"item {self._number} is no JSON, or the file ends within it")

    def _skip_space(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        return found.end() if found else at
