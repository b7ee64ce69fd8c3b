"""Refuses what a call does not know: a misspelt filter would show everything."""

from collections.abc import Generator
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from services.sender.api.keys import Caller, caller
from shared.web import Problem

#: What clients send who have nothing to say.
_NOTHING: Final = (b"", b"{}", b"null")


async def only_known(request: Request, _: Annotated[Caller, Depends(caller)]) -> None:
    """For every route. Asked after the key, so that nobody else learns what there is."""
    route: APIRoute = request.scope["route"]
    errors: list[dict[str, Any]] = []
    known = set(_query_names(route.dependant))
    for name in request.query_params.keys() - known:
        told = f"is unknown; known: {', '.join(sorted(known)) or 'none'}"
        errors.append({"field": f"query.{name}", "message": told})
    if not _takes_body(route) and (await request.body()).strip() not in _NOTHING:
        errors.append({"field": "body", "message": "this call takes no body"})
    if errors:
        raise Problem(422, "the request is not valid", errors=errors)


def _query_names(dependant: Dependant) -> Generator[str]:
    for field in dependant.query_params:
        yield field.alias
    for inner in dependant.dependencies:
        yield from _query_names(inner)


def _takes_body(route: APIRoute) -> bool:
    """An upload's route reads its body itself, and describes it in its own words."""
    return route.body_field is not None or "requestBody" in (route.openapi_extra or {})
