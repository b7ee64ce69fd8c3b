"""What tests and the demo ask the simulator itself, beside Meta's paths."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from services.simulator.scenario import Scenario
from services.simulator.world import World

_NDJSON = "application/x-ndjson"


def routes(world: World) -> APIRouter:
    """The control routes; Meta's come after them."""
    router = APIRouter()

    @router.get("/healthz", include_in_schema=False)
    @router.get("/readyz", include_in_schema=False)
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @router.get("/_sim/scenario")
    async def show_scenario() -> Scenario:
        return world.scenario

    @router.put("/_sim/scenario")
    async def change_scenario(scenario: Scenario) -> Scenario:
        world.change(scenario)
        return world.scenario

    @router.get("/_sim/stats")
    async def stats() -> dict[str, Any]:
        return world.stats()

    @router.get("/_sim/ledger")
    async def ledger() -> StreamingResponse:
        return StreamingResponse(world.ledger.acceptance_lines(), media_type=_NDJSON)

    @router.get("/_sim/ambiguous")
    async def ambiguous() -> StreamingResponse:
        return StreamingResponse(world.ledger.unclear_lines(), media_type=_NDJSON)

    @router.delete("/_sim/ledger", status_code=204)
    async def clear() -> None:
        world.clear()

    return router
