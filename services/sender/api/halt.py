"""The red button."""

from fastapi import APIRouter
from sqlalchemy import text

from services.sender.api.connection import ConnectionDep
from services.sender.api.keys import Operator
from shared.db.notices import WAKE

router = APIRouter(prefix="/v1", tags=["halt"])

_SET = text("UPDATE installation SET halted = :halted")


@router.post("/halt")
async def halt(connection: ConnectionDep, _: Operator) -> dict[str, bool]:
    """Nothing leaves from any number, until `unhalt`. May be pressed twice."""
    return await _set(connection, halted=True)


@router.post("/unhalt")
async def unhalt(connection: ConnectionDep, _: Operator) -> dict[str, bool]:
    return await _set(connection, halted=False)


async def _set(connection: ConnectionDep, *, halted: bool) -> dict[str, bool]:
    await connection.execute(_SET, {"halted": halted})
    await connection.execute(WAKE)
    return {"halted": halted}
