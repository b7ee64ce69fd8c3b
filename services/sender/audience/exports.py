"""Writes a campaign's recipients, and what became of their messages, as one long file."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.audience.rejects import csv_lines, harmless
from services.sender.campaigns.lifecycle import Campaign
from services.sender.campaigns.order import FOLLOWING
from shared.whatsapp.errors import rule_for

# Rows held at once. Few: the loop that reads them may be the one that sends, to the millisecond.
PAGE = 500

# The page is cut first: joined as a whole,
# the tables would be merged from the first recipient on, again for each page.
_NEXT = text(f"""
WITH page AS MATERIALIZED (SELECT * FROM messages WHERE {FOLLOWING} LIMIT :most)
SELECT m.id, r.external_id, r.phone, m.status::text AS status, m.reason, m.error_code,
    m.attempt, m.spent,
    m.due_at, m.claimed_at, m.accepted_at, m.sent_at, m.delivered_at, m.read_at, m.failed_at,
    m.wamid, r.metadata::text AS metadata
FROM page m JOIN recipients r ON r.id = m.id ORDER BY m.id
""")  # built from constants

COLUMNS = (
    *(
        "id",
        "external_id",
        "phone",
        "status",
        "reason",
        "error_code",
        "error_title",
        "attempt",
        "spent",
    ),
    *("due_at", "claimed_at", "accepted_at", "sent_at", "delivered_at", "read_at", "failed_at"),
    *("wamid", "metadata"),
)
# Words of the caller, of Meta, and of whoever skipped: the others begin as we write them.
_FOREIGN = ("external_id", "reason", "wamid", "metadata")

_encode = msgspec.json.Encoder().encode


class ExportFormat(StrEnum):
    """How an export is written: safe for a spreadsheet, or exact, a JSON object a line."""

    CSV = "csv"
    NDJSON = "ndjson"


async def export(
    engine: AsyncEngine, campaign: Campaign, kind: ExportFormat
) -> AsyncGenerator[str]:
    """All recipients in the order of their ids, each as it is when its page is read.

    No transaction stays open while the client reads.
    """
    if kind is ExportFormat.CSV:
        yield csv_lines([COLUMNS])
    write = _csv if kind is ExportFormat.CSV else _ndjson
    after = 0
    while rows := await _page(engine, campaign, after):
        yield await asyncio.to_thread(write, rows)
        after = rows[-1]["id"]


async def _page(engine: AsyncEngine, campaign: Campaign, after: int) -> Sequence[RowMapping]:
    values = {"campaign": campaign.id, "after": after, "most": PAGE}
    async with engine.connect() as connection:
        return (await connection.execute(_NEXT, values)).mappings().all()


def _csv(rows: Sequence[RowMapping]) -> str:
    return csv_lines(map(_cells, rows))


def _cells(row: RowMapping) -> list[Any]:
    told = _told(row)
    told |= {name: harmless(told[name]) for name in _FOREIGN if told[name]}
    return [told[column] for column in COLUMNS]


def _ndjson(rows: Sequence[RowMapping]) -> str:
    return "".join(_line(row) for row in rows)


def _line(row: RowMapping) -> str:
    told = _told(row)
    if told["metadata"] is not None:
        told["metadata"] = msgspec.Raw(told["metadata"].encode())
    return _encode({column: told[column] for column in COLUMNS}).decode() + "\n"


def _told(row: RowMapping) -> dict[str, Any]:
    code = row["error_code"]
    told = {name: _plain(value) for name, value in row.items()}
    return told | {"error_title": None if code is None else rule_for(code, 400).title}


def _plain(value: object) -> object:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
