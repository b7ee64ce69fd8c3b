"""Writes what uploads rejected as CSV, page by page."""

import asyncio
import csv
import io
import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.campaigns.lifecycle import Campaign

_HEADER = ("upload_id", "row", "reason", "raw")
# Few, and in a thread: the loop that reads them may be the one that sends, to the millisecond.
PAGE = 500
# A cell that begins with one of these is run by spreadsheets; an apostrophe makes it text. A row as
# it came is one cell of ours, but where semicolons separate it is several.
_RUN = re.compile(r'(^|[,;\t\r\n])("*)(?=[=+\-@\t\r])')

_UPLOADS = text("SELECT id FROM uploads WHERE campaign_id = :campaign ORDER BY id")
_NEXT = text("""
SELECT row_number, reason, raw FROM upload_rejects
WHERE upload_id = :upload AND row_number > :row ORDER BY row_number LIMIT :most
""")


async def rejects_csv(engine: AsyncEngine, campaign: Campaign) -> AsyncGenerator[str]:
    """All rejected rows of a campaign. No transaction stays open while the client reads."""
    yield csv_lines([_HEADER])
    async with engine.connect() as connection:
        uploads = (await connection.execute(_UPLOADS, {"campaign": campaign.id})).scalars().all()
    for upload in uploads:
        async for lines in _of_upload(engine, upload):
            yield lines


async def _of_upload(engine: AsyncEngine, upload: int) -> AsyncGenerator[str]:
    row = 0
    while True:
        values = {"upload": upload, "row": row, "most": PAGE}
        async with engine.connect() as connection:
            found = (await connection.execute(_NEXT, values)).all()
        if not found:
            return
        yield await asyncio.to_thread(_lines, upload, found)
        row = found[-1].row_number


def _lines(upload: int, rows: Sequence[Row[Any]]) -> str:
    return csv_lines(
        (upload, row.row_number, *map(harmless, (row.reason, row.raw))) for row in rows
    )


def harmless(cell: str) -> str:
    """The cell as text that no spreadsheet runs; uploading it again gives the same number."""
    return _RUN.sub(r"\1\2'", cell)


def csv_lines(rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV, every cell in quotes."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    return text.getvalue()
