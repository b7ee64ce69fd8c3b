"""What tests and the demo ask the simulator itself, beside Meta's paths."""

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse, StreamingResponse

from services.simulator import replies
from services.simulator.scenario import Scenario
from services.simulator.world import World

_NDJSON = "application/x-ndjson"


def routes(world: World) -> APIRouter:
    """The control routes, then Meta's that are not sends."""
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

    _add_graph(router)
    return router


def _add_graph(router: APIRouter) -> None:
    @router.get("/{version}/{phone_number_id}", include_in_schema=False)
    async def number(version: str, phone_number_id: str) -> Response:
        if not phone_number_id.isdecimal():
            return _unknown(f"/{version}/{phone_number_id}")
        return JSONResponse(
            {
                "id": phone_number_id,
                "display_phone_number": phone_number_id,
                "status": "CONNECTED",
                "quality_rating": "GREEN",
                "throughput": {"level": "STANDARD"},
            }
        )

    @router.api_route("/{path:path}", methods=["GET", "POST", "DELETE"], include_in_schema=False)
    async def elsewhere(path: str) -> Response:
        return _unknown(f"/{path}")


def _unknown(path: str) -> Response:
    status, body = replies.unknown_object(path)
    return Response(body, status, media_type="application/json")
