"""Finds the message of a failure that came without our token, by Meta's id of it."""

from collections.abc import Collection
from dataclasses import replace

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.ingest.parse import StatusEvent
from shared.domain.tokens import Token

# The message a row stands for now goes before one that it has left behind.
_FIND = text("""
SELECT DISTINCT ON (wamid) wamid, message_id, attempt FROM (
    SELECT m.wamid, m.id AS message_id, m.attempt, 0 AS rank FROM messages m
    WHERE m.wamid = ANY(CAST(:wamids AS text[]))
    UNION ALL
    SELECT a.wamid, a.message_id, a.attempt, 1 FROM attempts a
    WHERE a.wamid = ANY(CAST(:wamids AS text[]))
) AS found ORDER BY wamid, rank, message_id, attempt DESC
""")


async def resolve(
    connection: AsyncConnection, events: Collection[StatusEvent], installation: str
) -> tuple[list[StatusEvent], list[StatusEvent]]:
    """The events as if they had their token, and those whose message is not known."""
    if not events:
        return [], []
    wamids = sorted({event.wamid for event in events})
    rows = await connection.execute(_FIND, {"wamids": wamids})
    tokens = {row.wamid: Token(installation, row.message_id, row.attempt) for row in rows}
    known = [replace(e, token=tokens[e.wamid]) for e in events if e.wamid in tokens]
    return known, [event for event in events if event.wamid not in tokens]
