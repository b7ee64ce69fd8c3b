"""Writes what uploads rejected as CSV, page by page."""

import csv
import io
from collections.abc import AsyncGenerator

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.campaigns.lifecycle import Campaign

_HEADER = ("upload_id", "row", "reason", "raw")
_PAGE = 5000
# A cell that begins with one of these is run by spreadsheets; an apostrophe makes it text.
_RUN = ("=", "+", "-", "@", "\t", "\r")

_NEXT = text("""
SELECT upload_id, row_number, reason, raw FROM upload_rejects
WHERE upload_id IN (SELECT id FROM uploads WHERE campaign_id = :campaign)
  AND (upload_id, row_number) > (:upload, :row)
ORDER BY upload_id, row_number LIMIT :most
""")


async def rejects_csv(engine: AsyncEngine, campaign: Campaign) -> AsyncGenerator[str]:
    """All rejected rows of a campaign. No transaction stays open while the client reads."""
    yield _lines([_HEADER])
    upload, number = 0, 0
    while True:
        values = {"campaign": campaign.id, "upload": upload, "row": number, "most": _PAGE}
        async with engine.connect() as connection:
            rows = (await connection.execute(_NEXT, values)).all()
        if not rows:
            return
        yield _lines(
            [(row.upload_id, row.row_number, row.reason, harmless(row.raw)) for row in rows]
        )
        upload, number = rows[-1].upload_id, rows[-1].row_number


def harmless(cell: str) -> str:
    """The cell as text that no spreadsheet runs; uploading it again gives the same number."""
    return f"'{cell}" if cell.startswith(_RUN) else cell


def _lines(rows: list[tuple[object, ...]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()
