"""What an audience may come as: its formats, plain or compressed."""

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from services.sender.audience.elements import ArrayCutter, LineCutter
from services.sender.audience.objects import ObjectParser
from services.sender.audience.records import FileRefused
from services.sender.audience.rows import NOTHING, Batch, RowParser

RATIO_LIMIT = 200
# Unpacked at once. So much may come of any body, however small: its ratio says nothing.
STEP = 256 * 1024
# Members unpacked at once: a small body may hold thousands that hold nothing.
MEMBERS = 64
_GZIP = zlib.MAX_WBITS | 16


class Format(StrEnum):
    """The formats by their media types."""

    CSV = "text/csv"
    NDJSON = "application/x-ndjson"
    JSON = "application/json"


class Parser(Protocol):
    """Parses a file piece by piece."""

    def feed(self, data: bytes, *, final: bool = False) -> Batch: ...


@dataclass(frozen=True, slots=True)
class File:
    """A file while it arrives."""

    body: AsyncIterator[bytes]
    format: Format = Format.CSV
    gzipped: bool = False

    def unpacked(self) -> AsyncIterator[bytes]:
        return gunzip(self.body) if self.gzipped else self.body


def parser_for(
    kind: Format, default_country: str | None, needed: Mapping[str, bool] = NOTHING
) -> Parser:
    """`needed` are the template's columns; True: of which no value may be empty."""
    match kind:
        case Format.CSV:
            return RowParser(default_country, needed)
        case Format.NDJSON:
            return ObjectParser(LineCutter(), default_country, needed)
        case Format.JSON:
            return ObjectParser(ArrayCutter(), default_country, needed)


async def gunzip(body: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """A gzip body unpacked, step by step. Raises `FileRefused`."""
    unpacking = _Gunzip()
    async for data in body:
        unpacking.put(data)
        while unpacking.has_more:
            if out := unpacking.step():
                yield out
            else:
                await asyncio.sleep(0)  # nothing came out of many members: others have waited
    unpacking.check_end()


class _Gunzip:
    """One or more gzip members in a row: some tools write large files so."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self._data = b""
        self._begun = False
        self._read = 0
        self._written = 0

    @property
    def has_more(self) -> bool:
        return bool(self._data)

    def put(self, data: bytes) -> None:
        self._data += data
        self._read += len(data)

    def step(self) -> bytes:
        """Up to `STEP` bytes; none when it takes more data to go on, or another step.

        A member's last bytes are its checksum, so what it still holds comes before all is taken.
        """
        out = b""
        for _ in range(MEMBERS):
            if out or not self._data:
                break
            out = self._unpack()
        self._written += len(out)
        if self._written > max(STEP, RATIO_LIMIT * self._read):
            raise FileRefused(f"the gzip body unpacks to more than {RATIO_LIMIT} times its size")
        return out

    def _unpack(self) -> bytes:
        if self._member.eof:
            self._data = self._data.lstrip(b"\0")  # a block device or a tape was filled up
            if not self._data:
                return b""
            self._member = zlib.decompressobj(_GZIP)
        try:
            out = self._member.decompress(self._data, STEP)
        except zlib.error:
            raise FileRefused("the body is not what gzip writes") from None
        self._begun = True
        self._data = self._member.unused_data or self._member.unconsumed_tail
        return out

    def check_end(self) -> None:
        if self._begun and not self._member.eof:
            raise FileRefused("the gzip body ends early")
