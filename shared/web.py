"""What both services show beside their own routes: health, metrics and errors as problem+json."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_fastapi_instrumentator import Instrumentator
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared.periodic import describe

log = structlog.get_logger()

#: A body is read before its key is looked at, so nobody may send more than this.
LARGEST_BODY: Final = 1 << 20
_STREAMED = "headrace.streamed"

#: Says what is not ready, or None.
Check = Callable[[], Awaitable[str | None]]


class Problem(Exception):  # noqa: N818  # the word of RFC 9457, which callers see
    """An answer of RFC 9457: `detail` says what to do, `errors` names fields or rows.

    `members` are what this kind of problem says beside them.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Sequence[dict[str, Any]] = (),
        headers: dict[str, str] | None = None,
        members: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = list(errors)
        self.headers = headers
        self.members = members


def problem_response(problem: Problem) -> JSONResponse:
    """Render a problem as `application/problem+json`."""
    body = {
        **problem.members,
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
        "errors": problem.errors,
    }
    return JSONResponse(
        body, problem.status, problem.headers, media_type="application/problem+json"
    )


def install_web(app: FastAPI, ready: Check) -> None:
    """Add `/healthz`, `/readyz`, `/metrics` and the problem+json answers to an app."""
    # A path with a slash too many is none: the way elsewhere would be built from the Host header.
    app.router.redirect_slashes = False

    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> Response:
        missing = await ready()
        if missing is None:
            return JSONResponse({"status": "ready"})
        return problem_response(Problem(503, missing))

    # Route templates, never paths: a path may hold a phone number.
    Instrumentator(should_ignore_untemplated=True, excluded_handlers=["/metrics"]).instrument(
        app
    ).expose(app, include_in_schema=False)
    app.add_middleware(_LastResort)
    app.add_middleware(_BodyLimit)
    _install_problems(app)


def lift_body_limit(request: Request) -> None:
    """For a route that reads its body as a stream, after it has looked at the key."""
    request.scope[_STREAMED] = True


class _BodyLimit:
    """Ends the reading of a body that is too large."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = 0

        async def limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > LARGEST_BODY and not scope.get(_STREAMED):
                raise HTTPException(413, f"the body is larger than {LARGEST_BODY >> 20} MiB")
            return message

        await self._app(scope, limited, send)


class _LastResort:
    """Answers what no route expected. The server would log the error's text: personal data."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:  # noqa: BLE001  # whatever it is, the caller gets an answer
            answer = _unexpected(error)
            # An answer that has begun stays cut off: the server closes its connection.
            if not started:
                await answer(scope, receive, send)


def _unexpected(error: Exception) -> Response:
    log.error("request_failed", **describe(error))
    return problem_response(Problem(500, "a mistake of ours; the log says where"))


def _install_problems(app: FastAPI) -> None:
    @app.exception_handler(Problem)
    async def answer_problem(_: Request, problem: Problem) -> Response:
        return problem_response(problem)

    @app.exception_handler(HTTPException)
    async def answer_http(_: Request, error: HTTPException) -> Response:
        headers = dict(error.headers) if error.headers else None
        detail = "the body is not JSON in UTF-8" if error.status_code == 400 else str(error.detail)
        return problem_response(Problem(error.status_code, detail, headers=headers))

    @app.exception_handler(RequestValidationError)
    async def answer_invalid(request: Request, error: RequestValidationError) -> Response:
        found = error.errors()
        if any(item["type"] == "model_attributes_type" for item in found) and not _is_json(request):
            return problem_response(Problem(415, "the body is taken as application/json"))
        errors = [_told(item, error.body) for item in found]
        return problem_response(Problem(422, "the request is not valid", errors=errors))


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _told(item: Mapping[str, Any], body: Any) -> dict[str, str]:
    """Only the place and the rule: the input may be personal data."""
    if item["type"] == "json_invalid":
        before = str(body)[: item["loc"][-1]]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return {"field": "body", "message": f"no JSON at line {line}, column {column}"}
    return {
        "field": ".".join(str(part) for part in item["loc"]),
        "message": item["msg"].removeprefix("Value error, "),
    }
