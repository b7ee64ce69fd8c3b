"""The rows of live messages: who may be written to now, and the row that stands before the send."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import UUID
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.domain.ids import uuid7
from shared.domain.phones import Phone
from shared.whatsapp.live import Kind

_LOOK = text("""
SELECT n.rate, n.headroom, n.token_name, installation.halted,
    n.state = 'paused' AND coalesce(n.paused_until > now(), true) AS paused,
    n.paused_reason, extract(epoch FROM n.paused_until - now())::float8 AS paused_s,
    c.id AS campaign
FROM installation JOIN numbers n ON n.phone_number_id = :number
LEFT JOIN campaigns c ON c.phone_number_id = n.phone_number_id AND c.state = 'live'
""")

# A live message has one attempt: whatever would make it pending again makes it failed.
_OPEN = text("""
INSERT INTO campaigns (public_id, name, phone_number_id, state, template, max_attempts)
VALUES (:public_id, 'live messages', :number, 'live', '{}', 1)
ON CONFLICT (phone_number_id) WHERE state = 'live' DO NOTHING
""").bindparams(bindparam("public_id", type_=UUID(as_uuid=True)))

# Claimed at once: no claim ever finds it, and if this process dies the reclaimer does. Who opted
# out, or may not be sent to from here, is skipped by the same statement, as a claim does it.
_WRITE = text("""
WITH made AS (
    INSERT INTO live_messages (id, phone_number_id, person, phone, kind)
    VALUES (nextval(pg_get_serial_sequence('recipients', 'id')), :number, :person, :phone, :kind)
    RETURNING id, person, phone
), barred AS (
    SELECT made.id, CASE
        WHEN EXISTS (SELECT FROM opt_outs WHERE opt_outs.person = made.person) THEN 'opted_out'
        WHEN NOT coalesce(
            (made.phone || '.') ^@ ANY (CAST(:allowed AS text[])),
            CAST(:allowed AS text[]) IS NULL
        ) THEN 'not_allowed'
    END AS reason FROM made
), written AS (
    INSERT INTO messages (id, campaign_id, status, claimed_at, reason)
    SELECT id, :campaign,
        CASE WHEN reason IS NULL THEN 'claimed' ELSE 'skipped' END::message_status,
        CASE WHEN reason IS NULL THEN clock_timestamp() END, reason
    FROM barred
    RETURNING id, campaign_id, status, reason
), counted AS (
    INSERT INTO counter_deltas (campaign_id, minute, status, error_code, entered, departed)
    SELECT campaign_id, date_trunc('minute', now()), status, 0, 1, 0 FROM written
)
SELECT id, reason FROM written
""")


class Refusal(StrEnum):
    """Why nothing may leave from a number now."""

    UNKNOWN_NUMBER = "unknown_number"
    HALTED = "halted"
    PAUSED = "number_paused"
    NO_TOKEN = "no_token"  # noqa: S105  # a word for what is missing
    STOPPING = "stopping"


class LiveRefused(Exception):  # noqa: N818  # what happened, as the caller is told
    """Nothing was written and nothing left; `seconds` is when a pause ends, if it does."""

    def __init__(
        self, refusal: Refusal, reason: str | None = None, seconds: float | None = None
    ) -> None:
        super().__init__(refusal)
        self.refusal = refusal
        self.reason = reason
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class LiveNumber:
    """A number that may send, and the campaign that its live messages are counted in."""

    phone_number_id: str
    rate: int
    headroom: float
    token_name: str | None
    campaign_id: int | None


@dataclass(frozen=True, slots=True)
class LiveRow:
    """A written message; `barred` says why it was skipped at once."""

    id: int
    campaign_id: int
    phone: str = field(repr=False)
    barred: str | None


async def look(connection: AsyncConnection, phone_number_id: str) -> LiveNumber:
    """The number as it stands. Raises `LiveRefused` where nothing may leave."""
    row = (await connection.execute(_LOOK, {"number": phone_number_id})).first()
    if row is None:
        raise LiveRefused(Refusal.UNKNOWN_NUMBER)
    if row.halted:
        raise LiveRefused(Refusal.HALTED)
    if row.paused:
        raise LiveRefused(Refusal.PAUSED, row.paused_reason, row.paused_s)
    return LiveNumber(phone_number_id, row.rate, row.headroom, row.token_name, row.campaign)


async def write(
    connection: AsyncConnection,
    number: LiveNumber,
    phone: Phone,
    kind: Kind,
    allowed: Sequence[str] | None,
) -> LiveRow:
    """Write the row of a message that is about to leave, or of one that may not."""
    campaign = number.campaign_id or await _open(connection, number.phone_number_id)
    values = {
        "number": number.phone_number_id,
        "campaign": campaign,
        "person": phone.person,
        "phone": phone.digits,
        "kind": kind,
        "allowed": None if allowed is None else list(allowed),
    }
    row = (await connection.execute(_WRITE, values)).one()
    return LiveRow(row.id, campaign, phone.digits, row.reason)


async def _open(connection: AsyncConnection, phone_number_id: str) -> int:
    """The number's first live message ever, or several at once: one row comes of it."""
    values = {"public_id": uuid7(), "number": phone_number_id}
    await connection.execute(_OPEN, values)
    found = await connection.execute(_LOOK, {"number": phone_number_id})
    return int(found.one().campaign)
