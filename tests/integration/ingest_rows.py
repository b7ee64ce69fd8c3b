"""Rows and webhooks for the tests of ingest."""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.ingest.fold import Evidence
from services.ingest.group import StoredWebhook, pack
from shared.db.counters import totals
from shared.db.tables import messages
from shared.domain.status import Status
from shared.domain.tokens import Token

# Meta's times are whole seconds.
AT = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=2)
NUMBER = "840000000000002"
IDS = itertools.count(1)


def evidence(
    status: str,
    *,
    attempt: int = 1,
    wamid: str = "w",
    code: int | None = None,
    at: datetime = AT,
    also: Mapping[str, datetime] = {},
) -> Callable[[int], Evidence]:
    """What a batch says, of a message that is named later."""

    def make(message_id: int) -> Evidence:
        times = {Status(name): moment for name, moment in also.items()} | {Status(status): at}
        return Evidence(
            message_id, attempt, wamid, Status(status), times, code, code and f"code {code}"
        )

    return make


async def new_campaign(connection: AsyncConnection, **values: Any) -> int:
    row = {"state": "running", "max_attempts": 5, "expires_at": None} | values
    statement = text("""
        INSERT INTO campaigns
            (public_id, name, phone_number_id, template, state, max_attempts, expires_at)
        VALUES (gen_random_uuid(), 'c', :number, '{}', :state, :max_attempts, :expires_at)
        RETURNING id
    """)
    return (await connection.execute(statement, row | {"number": NUMBER})).scalar_one()


async def new_message(connection: AsyncConnection, campaign: int, **values: Any) -> int:
    """A row, and the delta that says it is there."""
    row = {"id": next(IDS), "campaign_id": campaign} | values
    await connection.execute(messages.insert().values(row))
    await connection.execute(
        text("""
            INSERT INTO counter_deltas
                (campaign_id, minute, status, error_code, entered, departed)
            SELECT campaign_id, date_trunc('minute', now()), status, coalesce(error_code, 0), 1, 0
            FROM messages WHERE id = :id
        """),
        {"id": row["id"]},
    )
    return row["id"]


async def row_of(connection: AsyncConnection, message: int) -> dict[str, Any]:
    statement = text("SELECT *, status::text AS status FROM messages WHERE id = :id")
    return dict((await connection.execute(statement, {"id": message})).mappings().one())


async def history(connection: AsyncConnection, message: int) -> list[dict[str, Any]]:
    statement = text(
        "SELECT *, evidence::text AS evidence FROM attempts WHERE message_id = :id ORDER BY attempt"
    )
    return [dict(row) for row in (await connection.execute(statement, {"id": message})).mappings()]


async def counted(connection: AsyncConnection, campaign: int) -> None:
    """The counters say exactly what the rows say."""
    statement = text(
        "SELECT status::text, count(*) FROM messages WHERE campaign_id = :id GROUP BY status"
    )
    rows = {row[0]: row[1] for row in await connection.execute(statement, {"id": campaign})}
    counters = await totals(connection, campaign)
    assert {status.value: total for status, total in counters.items() if total} == rows


async def installation_of(engine: AsyncEngine) -> str:
    async with engine.connect() as connection:
        return (await connection.execute(text("SELECT id FROM installation"))).scalar_one()


def status(
    token: Token | None,
    name: str,
    *,
    at: datetime = AT,
    wamid: str | None = None,
    code: int | None = None,
) -> dict[str, Any]:
    """One status as Meta writes it."""
    one: dict[str, Any] = {
        "id": wamid or (token and f"wamid.{token.message_id}.{token.attempt}"),
        "status": name,
        "timestamp": str(int(at.timestamp())),
        "recipient_id": "12025550142",
    }
    if token:
        one["biz_opaque_callback_data"] = token.encode()
    if code is not None:
        one["errors"] = [{"code": code, "title": "t", "error_data": {"details": "d"}}]
    return one


def webhook(statuses: Iterable[Any], number: str = NUMBER) -> bytes:
    value = {"metadata": {"phone_number_id": number}, "statuses": list(statuses)}
    return json.dumps({"entry": [{"changes": [{"field": "messages", "value": value}]}]}).encode()


async def put(engine: AsyncEngine, *bodies: bytes, at: datetime | None = None) -> None:
    """Store webhooks as one group, as the door does it."""
    received_at = at or datetime.now(UTC)
    group = pack([StoredWebhook(received_at, "sha256=", body) for body in bodies])
    statement = text("""
        WITH stored AS (
            INSERT INTO webhook_groups (webhooks, bodies) VALUES (:n, :bodies)
            RETURNING id, received_at
        )
        INSERT INTO webhook_pending (purpose, group_id, received_at)
        SELECT 'apply', id, received_at FROM stored
    """)
    async with engine.begin() as connection:
        await connection.execute(statement, {"n": len(bodies), "bodies": group})


async def column(engine: AsyncEngine, statement: str) -> list[Any]:
    async with engine.connect() as connection:
        return list((await connection.scalars(text(statement))).all())
