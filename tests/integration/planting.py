"""Numbers, campaigns and messages for the tests of the sender, and what became of them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.pipeline.claim import Claim, Share, claim
from services.sender.pipeline.watermarks import BEGINNING
from shared.db.counters import totals
from shared.db.tables import attempts, campaigns, messages, numbers
from shared.domain.ids import uuid7

NUMBER = "100000000000001"
TEMPLATE = {"name": "order_ok", "language": "en"}

_NUMBER = text("""
INSERT INTO numbers (phone_number_id, waba_id) VALUES (:number, 'w1') ON CONFLICT DO NOTHING
""")

# Every row is due a microsecond after the one before, as the upload makes them.
_MESSAGES = text("""
WITH made AS (
    INSERT INTO recipients (id, campaign_id, upload_id, person, phone, parameters)
    SELECT number, :campaign, 0, 'p' || number, (12025000000 + number)::text, :parameters
    FROM (SELECT nextval(pg_get_serial_sequence('recipients', 'id')) AS number
          FROM generate_series(1, :count)) AS people
    RETURNING id
), placed AS (
    SELECT id, row_number() OVER (ORDER BY id) AS place FROM made
), planted AS (
    INSERT INTO messages (id, campaign_id, status, due_at, claimed_at, attempt, spent, wamid,
        error_code, concluded)
    SELECT id, :campaign, CAST(:status AS message_status),
        CASE WHEN :status = 'pending'
            THEN now() + make_interval(secs => :due_in) + place * interval '1 microsecond' END,
        CASE WHEN :status IN ('claimed', 'unknown')
            THEN now() - make_interval(secs => :age) END,
        :attempt, :spent, :wamid, :error_code, :concluded
    FROM placed RETURNING id
), counted AS (
    INSERT INTO counter_deltas (campaign_id, minute, status, error_code, entered, departed)
    VALUES (:campaign, date_trunc('minute', now()), CAST(:status AS message_status),
        coalesce(:error_code, 0), :count, 0)
)
SELECT id FROM planted ORDER BY id
""").bindparams(bindparam("parameters", type_=JSONB))

_PLAIN = {
    "status": "pending",
    "due_in": -60.0,
    "age": 0.0,
    "attempt": 1,
    "spent": 0,
    "wamid": None,
    "error_code": None,
    "concluded": False,
    "parameters": {},
}

_BY_ROWS = text("""
SELECT status::text, coalesce(error_code, 0) AS code, count(*)::bigint AS many FROM messages
WHERE campaign_id = :campaign GROUP BY 1, 2
""")

_BY_COUNTERS = text("""
SELECT status::text, error_code AS code, sum(entered - departed)::bigint AS many FROM (
    SELECT campaign_id, status, error_code, entered, departed FROM campaign_counters
    UNION ALL SELECT campaign_id, status, error_code, entered, departed FROM counter_deltas
) AS parts WHERE campaign_id = :campaign GROUP BY 1, 2 HAVING sum(entered - departed) <> 0
""")


@dataclass(frozen=True)
class Row:
    """A message as it stands."""

    id: int
    campaign_id: int
    status: str
    attempt: int
    spent: int
    due_at: datetime | None
    claimed_at: datetime | None
    accepted_at: datetime | None
    failed_at: datetime | None
    wamid: str | None
    error_code: int | None
    reason: str | None
    concluded: bool


@dataclass(frozen=True)
class Past:
    """An attempt in the history."""

    attempt: int
    outcome: str
    error_code: int | None
    wamid: str | None
    details: str | None
    fbtrace_id: str | None


async def plant_number(engine: AsyncEngine, phone_number_id: str = NUMBER, **values: Any) -> str:
    """An active business number; `values` are columns."""
    async with engine.begin() as connection:
        await connection.execute(_NUMBER, {"number": phone_number_id})
        if values:
            change = numbers.update().where(numbers.c.phone_number_id == phone_number_id)
            await connection.execute(change.values(values))
    return phone_number_id


async def plant_campaign(engine: AsyncEngine, **values: Any) -> int:
    """A running campaign with a closed audience; `values` are columns."""
    row: dict[str, Any] = {
        "public_id": uuid7(),
        "name": "c",
        "phone_number_id": NUMBER,
        "state": "running",
        "audience": "closed",
        "template": TEMPLATE,
    } | values
    await plant_number(engine, row["phone_number_id"])
    async with engine.begin() as connection:
        statement = campaigns.insert().values(row).returning(campaigns.c.id)
        return int((await connection.execute(statement)).scalar_one())


async def plant_messages(
    engine: AsyncEngine, campaign_id: int, count: int = 1, **values: Any
) -> list[int]:
    """So many messages with their recipients and their count, pending and due unless said."""
    assert values.keys() <= _PLAIN.keys(), values
    row = {**_PLAIN, **values, "campaign": campaign_id, "count": count}
    async with engine.begin() as connection:
        return list((await connection.execute(_MESSAGES, row)).scalars())


async def plant_opt_out(engine: AsyncEngine, message_id: int) -> None:
    people = "SELECT person, 'test' FROM recipients WHERE id = :id"
    await run(engine, f"INSERT INTO opt_outs (person, source) {people}", id=message_id)


async def claim_all(
    engine: AsyncEngine,
    campaign_id: int,
    most: int = 1000,
    watermark: datetime = BEGINNING,
    allowed: Sequence[str] | None = None,
) -> Claim:
    return await claim(engine, [Share(campaign_id, most, watermark)], allowed)


async def run(engine: AsyncEngine, statement: str, **values: Any) -> None:
    async with engine.begin() as connection:
        await connection.execute(text(statement), values)


async def change_campaign(engine: AsyncEngine, campaign_id: int, **values: Any) -> None:
    async with engine.begin() as connection:
        where = campaigns.update().where(campaigns.c.id == campaign_id)
        await connection.execute(where.values(values))


async def campaign_state(engine: AsyncEngine, campaign_id: int) -> tuple[str, str | None]:
    """State and pause reason."""
    async with engine.connect() as connection:
        statement = campaigns.select().where(campaigns.c.id == campaign_id)
        found = (await connection.execute(statement)).one()
    return found.state, found.pause_reason


async def events(engine: AsyncEngine, campaign_id: int) -> list[tuple[str, str]]:
    """Kind and actor of what the log says, oldest first."""
    statement = text("SELECT kind, actor FROM campaign_events WHERE campaign_id = :id ORDER BY id")
    async with engine.connect() as connection:
        found = await connection.execute(statement, {"id": campaign_id})
        return [(row.kind, row.actor) for row in found]


async def rows(engine: AsyncEngine, campaign_id: int) -> list[Row]:
    columns = [messages.c[name] for name in Row.__annotations__]
    statement = messages.select().with_only_columns(*columns).order_by(messages.c.id)
    async with engine.connect() as connection:
        found = await connection.execute(statement.where(messages.c.campaign_id == campaign_id))
        return [Row(**row) for row in found.mappings()]


async def one_row(engine: AsyncEngine, campaign_id: int) -> Row:
    (row,) = await rows(engine, campaign_id)
    return row


async def statuses(engine: AsyncEngine, campaign_id: int) -> Counter[str]:
    return Counter(row.status for row in await rows(engine, campaign_id))


async def history(engine: AsyncEngine, message_ids: Sequence[int]) -> dict[int, list[Past]]:
    """What the history says of each message, earliest attempt first."""
    columns = [attempts.c[name] for name in ("message_id", *Past.__annotations__)]
    statement = attempts.select().with_only_columns(*columns)
    found: dict[int, list[Past]] = {message_id: [] for message_id in message_ids}
    async with engine.connect() as connection:
        wanted = statement.where(attempts.c.message_id.in_(message_ids))
        for row in (await connection.execute(wanted.order_by(attempts.c.attempt))).mappings():
            values = dict(row)
            found[values.pop("message_id")].append(Past(**values))
    return found


async def check_counters(engine: AsyncEngine, *campaign_ids: int) -> None:
    """The counters say exactly what the rows say, by status and by code."""
    for campaign_id in campaign_ids:
        async with engine.connect() as connection:
            await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            values = {"campaign": campaign_id}
            by_rows = set(await connection.execute(_BY_ROWS, values))
            by_counters = set(await connection.execute(_BY_COUNTERS, values))
            shown = await totals(connection, campaign_id)
        assert by_counters == by_rows
        expected: Counter[str] = Counter()
        for status, _, many in by_rows:
            expected[status] += many
        assert {status.value: total for status, total in shown.items() if total} == expected
