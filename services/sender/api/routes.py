"""All routes of the REST API, and how refusals from below become answers."""

import asyncio
from typing import Final

from fastapi import FastAPI, Request, Response

from services.sender.api import campaigns, halt, numbers, recipients
from services.sender.campaigns.lifecycle import CampaignRefused, UnknownCampaign, UnknownNumber
from shared.web import Problem, problem_response

#: Uploads that one process takes at a time: each keeps a database connection for all its time.
UPLOADS: Final = 3


def install_routes(app: FastAPI) -> None:
    """Add the routes under `/v1`. They expect the `Runtime` as `request.state.runtime`."""
    app.state.upload_slots = asyncio.Semaphore(UPLOADS)
    for router in (numbers.router, halt.router, campaigns.router, recipients.router):
        app.include_router(router)
    _install_refusals(app)


def _install_refusals(app: FastAPI) -> None:
    @app.exception_handler(CampaignRefused)
    async def refuse(_: Request, refused: CampaignRefused) -> Response:
        return problem_response(Problem(409, str(refused)))

    @app.exception_handler(UnknownCampaign)
    async def no_campaign(_: Request, __: UnknownCampaign) -> Response:
        return problem_response(Problem(404, "there is no campaign with this id"))

    @app.exception_handler(UnknownNumber)
    async def no_number(_: Request, __: UnknownNumber) -> Response:
        return problem_response(Problem(422, "phone_number_id: this number is not registered"))
