"""Business numbers: registered, paused and resumed by people."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import RowMapping, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.api.answers import NumberNow, Page, ShownNumber, answers
from services.sender.api.campaign_shapes import without_defaults
from services.sender.api.connection import ConnectionDep
from services.sender.api.keys import Admin, Caller, Operator, Reader
from services.sender.api.paging import Cursor, Limit, cut, page
from services.sender.api.process import RuntimeDep
from services.sender.campaigns.pace import campaign_rate
from services.sender.campaigns.vitals import NumberVitals
from services.sender.pipeline.vitals import read_vitals
from services.sender.runtime import Runtime
from services.sender.settings import TOKEN_NAME
from shared.db.notices import WAKE
from shared.settings import SettingsError
from shared.web import Problem

log = structlog.get_logger()

router = APIRouter(prefix="/v1/phone-numbers", tags=["phone numbers"])

PhoneNumberId = Annotated[str, Path(pattern=r"^[0-9]{1,32}$", description="Meta's id of it")]

# A pause with an end that has passed is over, whoever looks.
_COLUMNS = """
phone_number_id, waba_id, portfolio_id, rate, headroom, token_name, created_at,
CASE WHEN paused_until <= now() THEN 'active' ELSE state END AS state,
CASE WHEN paused_until <= now() THEN NULL ELSE paused_reason END AS paused_reason,
CASE WHEN paused_until <= now() THEN NULL ELSE paused_until END AS paused_until
"""

# A number that is there keeps what is not given; a new one is none without its account.
_PUT = f"""
INSERT INTO numbers (phone_number_id, waba_id, portfolio_id, rate, headroom, token_name)
SELECT :phone_number_id, account, :portfolio_id, :rate, :headroom, :token_name
FROM (SELECT coalesce(CAST(:waba_id AS text), (
    SELECT waba_id FROM numbers WHERE phone_number_id = :phone_number_id
)) AS account) AS known WHERE account IS NOT NULL
ON CONFLICT (phone_number_id) DO UPDATE SET {{given}}
RETURNING {_COLUMNS}
"""

_LIST = text(f"SELECT {_COLUMNS} FROM numbers ORDER BY phone_number_id")  # constants
_GET = text(f"""
SELECT {_COLUMNS} FROM numbers WHERE phone_number_id = :phone_number_id
""")  # built from constants

# An operator's pause outlasts one with an end.
_PAUSE = text(f"""
UPDATE numbers SET state = 'paused', paused_reason = 'operator', paused_until = NULL
WHERE phone_number_id = :phone_number_id AND (state = 'active' OR paused_until IS NOT NULL)
RETURNING {_COLUMNS}
""")  # built from constants

_RESUME = text(f"""
UPDATE numbers SET state = 'active', paused_reason = NULL, paused_until = NULL
WHERE phone_number_id = :phone_number_id AND state = 'paused'
  AND (paused_until IS NULL OR paused_until > now())
RETURNING {_COLUMNS}
""")  # built from constants


class Number(BaseModel):
    """A business number. Campaigns may use `rate` less the share `headroom`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=without_defaults)

    waba_id: str | None = Field(
        None, pattern=r"^[0-9]{1,32}$", description="Meta's id of its account; a new one needs it"
    )
    rate: int = Field(
        80, ge=1, le=10_000, description="Messages per second that Meta allows; 80 of a new one"
    )
    headroom: float = Field(
        0.2, ge=0, lt=1, description="Share kept for live conversations; 0.2 of a new one"
    )
    portfolio_id: str | None = Field(None, pattern=r"^[0-9]{1,32}$")
    token: str | None = Field(
        None,
        pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$",
        description="NAME of the setting HEADRACE_ACCESS_TOKEN_<NAME> with its own token",
    )


@router.put("/{phone_number_id}", **answers(ShownNumber))
async def put_number(
    phone_number_id: PhoneNumberId,
    body: Number,
    runtime: RuntimeDep,
    connection: ConnectionDep,
    caller: Admin,
) -> dict[str, Any]:
    """Register a number, or change what is given of one; null takes a portfolio or token away.

    Every process acts on it within a second.
    """
    if body.token is not None:
        _check_token(body.token, runtime.settings.token_for)
    values = body.model_dump(exclude={"token"}) | {"token_name": body.token}
    values["phone_number_id"] = phone_number_id
    row = (await connection.execute(_put(body), values)).mappings().first()
    if row is None:
        error = {"field": "body.waba_id", "message": "a new number needs it"}
        raise Problem(422, "waba_id: a new number needs it", errors=[error])
    await connection.execute(WAKE)
    told = {name: row[name] for name in values}
    log.info("number_set", **told, actor=caller.actor)
    return _shown(row)


def _put(body: Number) -> TextClause:
    """What is given replaces what there was."""
    given = ["token_name" if name == "token" else name for name in sorted(body.model_fields_set)]
    names = [name for name in given if name != "waba_id" or body.waba_id is not None]
    # Always the id too, since something must be set.
    return text(
        _PUT.format(given=", ".join(f"{n} = excluded.{n}" for n in ("phone_number_id", *names)))
    )


@router.get("", **answers(Page[NumberNow]))
async def list_numbers(
    runtime: RuntimeDep,
    connection: ConnectionDep,
    _: Reader,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> dict[str, Any]:
    """By their ids, each as it is shown by itself."""
    rows, following = cut((await connection.execute(_LIST)).mappings().all(), cursor, limit)
    return page(await _alive(runtime, rows), following)


@router.get("/{phone_number_id}", **answers(NumberNow))
async def get_number(
    phone_number_id: PhoneNumberId, runtime: RuntimeDep, connection: ConnectionDep, _: Reader
) -> dict[str, Any]:
    """A number, with `campaign_rate`, what its campaigns may use, and its pace now.

    `campaign_rate` is `rate` without its `headroom`, in whole messages, and 1 % less: slots lie so
    much further apart than they had to, so that no second holds more than the rate.
    `effective_rate`, what throttling has left of `rate`, and `sends_last_minute` are null while
    Redis is away. A pause that senders make by themselves is shown too; the number stays active.
    """
    (shown,) = await _alive(runtime, [await _get(connection, phone_number_id)])
    return shown


@router.post("/{phone_number_id}/pause", **answers(ShownNumber))
async def pause_number(
    phone_number_id: PhoneNumberId, connection: ConnectionDep, caller: Operator
) -> dict[str, Any]:
    """Nothing is claimed for the number until it is resumed."""
    return await _move(connection, _PAUSE, phone_number_id, caller)


@router.post("/{phone_number_id}/resume", **answers(ShownNumber))
async def resume_number(
    phone_number_id: PhoneNumberId, connection: ConnectionDep, caller: Operator
) -> dict[str, Any]:
    """End a pause, whoever made it."""
    return await _move(connection, _RESUME, phone_number_id, caller)


async def _move(
    connection: AsyncConnection, move: TextClause, phone_number_id: str, caller: Caller
) -> dict[str, Any]:
    values = {"phone_number_id": phone_number_id}
    row = (await connection.execute(move, values)).mappings().first()
    if row is None:
        now = await _get(connection, phone_number_id)
        reason = f" ({now['paused_reason']})" if now["paused_reason"] else ""
        raise Problem(409, f"the number is {now['state']}{reason}")
    await connection.execute(WAKE)
    log.info("number_moved", number=phone_number_id, state=row["state"], actor=caller.actor)
    return _shown(row)


async def _get(connection: AsyncConnection, phone_number_id: str) -> RowMapping:
    values = {"phone_number_id": phone_number_id}
    row = (await connection.execute(_GET, values)).mappings().first()
    if row is None:
        raise Problem(404, "there is no number with this id")
    return row


def _check_token(name: str, token_for: Callable[[str], str]) -> None:
    if not TOKEN_NAME.fullmatch(name):
        raise Problem(422, "a token's name must not end in _FILE")
    try:
        token_for(name)
    except SettingsError as error:
        raise Problem(422, str(error)) from None


async def _alive(runtime: Runtime, rows: Sequence[RowMapping]) -> list[dict[str, Any]]:
    """Numbers with what Redis knows of them."""
    numbers = [row["phone_number_id"] for row in rows]
    vitals = await read_vitals(runtime.redis, runtime.patience, numbers)
    return [
        _shown(row) | _now(row, vitals.numbers[row["phone_number_id"]] if vitals else None)
        for row in rows
    ]


def _now(row: RowMapping, vitals: NumberVitals | None) -> dict[str, Any]:
    if vitals is None:
        return {"effective_rate": None, "sends_last_minute": None}
    pause = vitals.pause if row["state"] == "active" else None
    return {
        "effective_rate": round(row["rate"] * vitals.pace, 2),
        "sends_last_minute": vitals.sends_last_minute,
        **({"paused_reason": pause.reason, "paused_until": pause.ends_at} if pause else {}),
    }


def _shown(row: RowMapping) -> dict[str, Any]:
    shown = dict(row)
    shown["token"] = shown.pop("token_name")
    shown["campaign_rate"] = round(campaign_rate(row["rate"], row["headroom"]), 2)
    return shown
