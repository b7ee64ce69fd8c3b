"""The red button."""

import structlog
from fastapi import APIRouter
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.api.answers import Halted, answers
from services.sender.api.connection import ConnectionDep
from services.sender.api.keys import Caller, Operator, Reader
from shared.db.notices import WAKE

log = structlog.get_logger()

router = APIRouter(prefix="/v1", tags=["halt"])

_GET = text("SELECT halted FROM installation")
_SET = text("UPDATE installation SET halted = :halted")


@router.get("/halt", **answers(Halted))
async def get_halt(connection: ConnectionDep, _: Reader) -> dict[str, bool]:
    """Whether all is halted now."""
    return {"halted": bool(await connection.scalar(_GET))}


@router.post("/halt", **answers(Halted))
async def halt(connection: ConnectionDep, caller: Operator) -> dict[str, bool]:
    """Nothing leaves from any number, until `unhalt`. May be pressed twice; the log says who."""
    return await _set(connection, caller, halted=True)


@router.post("/unhalt", **answers(Halted))
async def unhalt(connection: ConnectionDep, caller: Operator) -> dict[str, bool]:
    return await _set(connection, caller, halted=False)


async def _set(connection: AsyncConnection, caller: Caller, *, halted: bool) -> dict[str, bool]:
    await connection.execute(_SET, {"halted": halted})
    await connection.execute(WAKE)
    log.info("halt_set", halted=halted, actor=caller.actor)
    return {"halted": halted}
