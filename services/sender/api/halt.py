"""The red button."""

from fastapi import APIRouter
from sqlalchemy import text

from services.sender.api.connection import ConnectionDep
from services.sender.api.keys import Operator

router = APIRouter(prefix="/v1", tags=["halt"])

_SET = text("UPDATE installation SET halted = :halted")
_WAKE = text("SELECT pg_notify('headrace', '')")


@router.post("/halt")
async def halt(connection: ConnectionDep, _: Operator) -> dict[str, bool]:
    """Nothing leaves from any number, until `unhalt`. May be pressed twice."""
    return await _set(connection, halted=True)


@router.post("/unhalt")
async def unhalt(connection: ConnectionDep, _: Operator) -> dict[str, bool]:
    return await _set(connection, halted=False)


async def _set(connection: ConnectionDep, *, halted: bool) -> dict[str, bool]:
    await connection.execute(_SET, {"halted": halted})
    await connection.execute(_WAKE)
    return {"halted": halted}
