"""All routes of the REST API, and how refusals and faults from below become answers."""

import asyncio
from typing import Final

import asyncpg
import structlog
from fastapi import Depends, FastAPI, Request, Response
from sqlalchemy.exc import SQLAlchemyError

from services.sender.api import (
    campaigns,
    checks,
    halt,
    keyring,
    messages,
    numbers,
    recipients,
    requeue,
    results,
)
from services.sender.api.keys import Uses
from services.sender.api.openapi import tell_the_truth
from services.sender.api.strict import only_known
from services.sender.campaigns.lifecycle import CampaignRefused, UnknownCampaign, UnknownNumber
from shared.db.faults import is_poison
from shared.periodic import describe
from shared.web import Problem, problem_response

log = structlog.get_logger()

#: Uploads that one process takes at a time: each keeps a database connection for all its time.
UPLOADS: Final = 3


_ROUTES: Final = (
    numbers,
    messages,
    halt,
    keyring,
    campaigns,
    checks,
    requeue,
    recipients,
    results,
)


def install_routes(app: FastAPI) -> None:
    """Add the routes under `/v1`. They expect the `Runtime` as `request.state.runtime`."""
    app.state.upload_slots = asyncio.Semaphore(UPLOADS)
    app.state.key_uses = Uses()
    for routes in _ROUTES:
        app.include_router(routes.router, dependencies=[Depends(only_known)])
    tell_the_truth(app)
    _install_refusals(app)
    for fault in (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        app.add_exception_handler(fault, _answer_fault)


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


async def _answer_fault(_: Request, error: Exception) -> Response:
    """The database is away, or met a value that it cannot hold."""
    if is_poison(error):
        detail = "a value cannot be stored: it is too long, or holds what no text may hold"
        return problem_response(Problem(422, detail))
    log.error("database_fault", **describe(error))
    problem = Problem(503, "the database does not answer", headers={"Retry-After": "1"})
    return problem_response(problem)
