"""What a hostile caller may cost, and what a mistake may tell: bodies, nesting, errors."""

import json
from collections.abc import AsyncGenerator

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from sender_api import Api, campaign, rows
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from structlog.testing import capture_logs

from shared.web import LARGEST_BODY, install_web

pytest_plugins = ["sender_server"]

PHONE = "12025550142"


async def in_chunks() -> AsyncGenerator[bytes]:
    for _ in range(64):
        yield b" " * (LARGEST_BODY // 16)


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("chunked", [True, False])
async def test_a_large_body_is_refused_before_it_is_read(api: Api, keyed, chunked):
    if not keyed:
        del api.headers["authorization"]
    body = in_chunks() if chunked else b" " * (LARGEST_BODY * 4)
    headers = {"content-type": "application/json"}
    answer = await api.post("/v1/campaigns", content=body, headers=headers)
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"] == "the body is larger than 1 MiB"


async def test_a_body_at_the_limit_is_read(api: Api):
    body = b"{}".ljust(LARGEST_BODY)
    headers = {"content-type": "application/json"}
    assert (await api.post("/v1/campaigns", content=body, headers=headers)).status_code == 422


async def test_an_upload_may_be_larger(api: Api, engine):
    path = await api.draft()
    lines = [f"+4915112{n:06},{'x' * 60_000}" for n in range(LARGEST_BODY // 60_000 + 1)]
    answer = await api.upload(path, "\n".join(["phone,name", *lines]))
    assert answer.json()["accepted"] == len(lines)
    assert await rows(engine, "SELECT count(*) FROM messages") == [(len(lines),)]


@pytest.mark.parametrize("levels", [33, 600, 100_000])
async def test_a_nested_template_is_refused(api: Api, levels):
    await api.register()
    body = json.dumps(campaign(template={"name": "x", "language": "en", "components": ["HERE"]}))
    nested = '{"a":' * levels + "1" + "}" * levels
    headers = {"content-type": "application/json"}
    content = body.replace('"HERE"', nested)
    answer = await api.post("/v1/campaigns", content=content, headers=headers)
    assert answer.status_code in (400, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_mistake_of_ours_is_a_problem_and_no_text_of_it_is_logged():
    app = FastAPI()

    async def ready() -> str | None:
        return None

    install_web(app, ready)

    @app.get("/mistake")
    async def mistake() -> None:
        raise RuntimeError(PHONE)

    @app.get("/late")
    async def late() -> StreamingResponse:
        return StreamingResponse(broken())

    transport = httpx.ASGITransport(app)  # what leaves the app is raised here
    async with httpx.AsyncClient(transport=transport, base_url="http://app.test") as client:
        with capture_logs() as logged:
            answer = await client.get("/mistake")
            with pytest.raises(AssertionError):  # the transport's: the answer has no end
                await client.get("/late")
    assert (answer.status_code, answer.json()["title"]) == (500, "Internal Server Error")
    assert answer.headers["content-type"] == "application/problem+json"
    assert [line["event"] for line in logged] == ["request_failed"] * 2
    assert "RuntimeError" in str(logged)
    assert PHONE not in str(logged) + answer.text


async def broken() -> AsyncGenerator[str]:
    yield "begun"
    raise RuntimeError(PHONE)


async def test_what_the_database_refuses_is_not_in_the_error(engine):
    statement = text("SELECT CAST(:phone AS text) WHERE 1 / length(:empty) = 1")
    async with engine.connect() as connection:
        with pytest.raises(DBAPIError, match="division by zero") as raised:
            await connection.execute(statement, {"phone": PHONE, "empty": ""})
    assert PHONE not in str(raised.value)
