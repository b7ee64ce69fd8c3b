"""The OpenAPI page as the API is: how it refuses, which FastAPI does not know, and its answers."""

from collections.abc import Generator
from typing import Any, Final

from fastapi import FastAPI

from services.sender.api.answers import ProblemAnswer

_ALWAYS: Final = {
    "401": "No key, or none that is valid",
    "403": "The key lacks the scope",
    "422": "The request is not valid",
    "503": "The database does not answer, or all that can be done at once is being done",
    "default": "Any other refusal",
}
_REFS: Final = "#/components/schemas/"
_PROBLEM: Final = {
    "application/problem+json": {"schema": {"$ref": f"{_REFS}{ProblemAnswer.__name__}"}}
}


def tell_the_truth(app: FastAPI) -> None:
    """Complete what FastAPI makes of the routes; made when it is first asked for."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        fresh = app.openapi_schema is None
        schema = generate()
        if fresh:
            _complete(schema)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to change it


def _complete(schema: dict[str, Any]) -> None:
    models: dict[str, Any] = schema["components"]["schemas"]
    models[ProblemAnswer.__name__] = ProblemAnswer.model_json_schema()
    for name in ("HTTPValidationError", "ValidationError"):
        models.pop(name, None)
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            responses: dict[str, Any] = operation["responses"]
            responses.pop("422", None)  # FastAPI's own, which is never sent
            for status, description in _refusals(path, method, operation):
                refusal = {"description": description, "content": _PROBLEM}
                responses.setdefault(status, refusal)
            _prefer_models(responses)


def _refusals(path: str, method: str, operation: dict[str, Any]) -> Generator[tuple[str, str]]:
    yield from _ALWAYS.items()
    if "{" in path:
        yield "404", "There is no such thing"
    if method in ("post", "patch"):
        yield "409", "Its state does not allow it, or a first request is still running"
    taken = operation.get("requestBody", {}).get("content", {})
    if taken:
        yield "413", "The body, or a part of it, is too large"
    if taken and "application/json" not in taken:
        yield "408", "No data came for too long"
        yield "415", "The body is in none of the formats"


def _prefer_models(responses: dict[str, Any]) -> None:
    """A route that returns a dict has told what is in it: FastAPI shows both, as one schema."""
    for response in responses.values():
        for content in response.get("content", {}).values():
            if "$ref" in content["schema"]:
                content["schema"] = {"$ref": content["schema"]["$ref"]}
