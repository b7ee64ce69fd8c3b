"""What the doctor makes of what Meta tells."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from pytest_httpx import HTTPXMock

from services.cli.checkups import Number
from services.cli.meta_checkups import (
    SCOPES,
    Graph,
    Refusal,
    Told,
    account_finding,
    look,
    number_finding,
    open_graph,
    token_finding,
)

BASE = "http://meta.test/v25.0"
VARIABLE = "HEADRACE_ACCESS_TOKEN_SHOP"
TOKEN = "a-token-of-the-tests"
NOW = 1_780_000_000
DAY = 86_400
NUMBER = Number("1065", "10", 80)
NODE = {
    "id": "1065",
    "display_phone_number": "+44 7400 123456",
    "verified_name": "Shop",
    "quality_rating": "GREEN",
    "platform_type": "CLOUD_API",
    "throughput": {"level": "STANDARD"},
    "code_verification_status": "VERIFIED",
    "status": "CONNECTED",
}
OURS = {"whatsapp_business_api_data": {"id": "7", "name": "Ours"}}
OTHER = {"whatsapp_business_api_data": {"id": "8", "name": "Other"}}
EXPIRED = Refusal(401, 190)


@pytest.fixture
async def graph() -> AsyncGenerator[Graph]:
    async with open_graph(BASE, TOKEN, VARIABLE) as opened:
        yield opened


def data(**changes: Any) -> Told:
    usual = {"app_id": "7", "is_valid": True, "expires_at": 0, "scopes": list(SCOPES)}
    return {"data": usual | changes}


@pytest.mark.parametrize(
    ("told", "expected", "shown"),
    [
        (data(), "well", "does not expire"),
        (data(expires_at=NOW + 15 * DAY), "well", "valid until 2026-06-12"),
        (data(expires_at=NOW + 13 * DAY), "warn", "valid until 2026-06-10"),
        (data(expires_at=NOW - DAY, is_valid=False), "sick", "expired on 2026-05-27"),
        (data(is_valid=False), "sick", "not valid any more"),
        (data(scopes=SCOPES[:1]), "sick", f"lacks {SCOPES[1]}"),
        (data(scopes=SCOPES[1:]), "sick", f"lacks {SCOPES[0]}"),
        (data(scopes=None), "sick", "lacks"),
        ({}, "sick", "not valid any more"),
        (EXPIRED, "sick", "401, code 190"),
        (Refusal(401, None), "sick", "401"),
        (Refusal(403, 10), "well", "does not say how long"),
    ],
)
def test_a_token(told: Told | Refusal, expected: str, shown: str) -> None:
    finding = token_finding(VARIABLE, told, NOW)
    assert finding.level == expected
    assert shown in finding.found
    assert finding.part == f"token {VARIABLE}"


@pytest.mark.parametrize(
    ("apps", "app", "expected", "shown"),
    [
        ([OURS], "7", "well", "webhooks go to Ours"),
        ([OTHER, OURS], "7", "well", "webhooks go to Other, Ours"),
        ([OTHER], None, "well", "webhooks go to Other"),
        ([OTHER], "7", "sick", "not to the token's app"),
        ([], "7", "sick", "no app is subscribed"),
        (None, "7", "sick", "no app is subscribed"),
    ],
)
def test_an_account(
    graph: Graph, apps: list[Told] | None, app: str | None, expected: str, shown: str
) -> None:
    finding = account_finding(graph, "10", {"data": apps}, app)
    assert finding.level == expected
    assert shown in finding.found
    if finding.cure:
        line = f'curl -X POST -H "Authorization: Bearer ${VARIABLE}" {BASE}/10/subscribed_apps'
        assert finding.cure.endswith(line)


def test_an_account_that_is_refused(graph: Graph) -> None:
    finding = account_finding(graph, "10", Refusal(400, 100), "7")
    assert "(400, code 100)" in finding.found
    assert "asset" in str(finding.cure)


@pytest.mark.parametrize(
    ("changes", "rate", "expected", "shown"),
    [
        ({}, 80, "well", "+44 7400 123456 (Shop), CONNECTED, quality GREEN, throughput STANDARD"),
        ({"quality_rating": "UNKNOWN"}, 80, "well", "UNKNOWN"),
        ({"quality_rating": "YELLOW"}, 80, "warn", "YELLOW"),
        ({"quality_rating": "RED"}, 80, "warn", "RED"),
        ({"status": "FLAGGED"}, 80, "sick", "FLAGGED"),
        ({"status": None, "platform_type": None}, 80, "well", "Shop"),
        ({"platform_type": "NOT_APPLICABLE"}, 80, "sick", "not on the Cloud API"),
        ({"platform_type": "ON_PREMISE", "status": "PENDING"}, 80, "sick", "(ON_PREMISE)"),
        ({}, 81, "warn", "which is 80 a second; its rate is 81"),
        ({"throughput": {"level": "HIGH"}}, 81, "well", "HIGH"),
        ({"throughput": None, "verified_name": None}, 81, "well", "without a name"),
    ],
)
def test_a_number(
    graph: Graph, changes: dict[str, Any], rate: int, expected: str, shown: str
) -> None:
    finding = number_finding(graph, Number("1065", "10", rate), NODE | changes)
    assert finding.level == expected
    assert shown in finding.found


def test_a_number_that_is_not_registered_is_told_how(graph: Graph) -> None:
    new = NODE | {"platform_type": "NOT_APPLICABLE"}
    cure = str(number_finding(graph, NUMBER, new).cure)
    assert cure.startswith("register it: curl -X POST ")
    assert f"${VARIABLE}" in cure
    assert cure.endswith(f"{BASE}/1065/register")
    unproved = new | {"code_verification_status": "NOT_VERIFIED"}
    assert "by a code" in str(number_finding(graph, NUMBER, unproved).cure)


def test_a_number_that_meta_does_not_show(graph: Graph) -> None:
    finding = number_finding(graph, NUMBER, Refusal(400, 100))
    assert "(400, code 100)" in finding.found
    assert finding.level == "sick"


async def test_everything_is_asked_with_the_token_and_nothing_shows_it(
    graph: Graph, httpx_mock: HTTPXMock
) -> None:
    httpx_mock.add_response(url=f"{BASE}/debug_token?input_token={TOKEN}", json=data())
    httpx_mock.add_response(url=f"{BASE}/10/subscribed_apps", json={"data": []})
    httpx_mock.add_response(json=NODE | {"platform_type": "NOT_APPLICABLE"}, is_reusable=True)

    found = await look(graph, TOKEN, [NUMBER, Number("1066", "10", 80)])

    assert [one.part for one in found] == [
        f"token {VARIABLE}",
        "account 10",
        "number 1065",
        "number 1066",
    ]
    assert {one.headers["authorization"] for one in httpx_mock.get_requests()} == {
        f"Bearer {TOKEN}"
    }
    assert TOKEN not in repr(found)


async def test_a_token_that_opens_nothing_is_told_once(graph: Graph, httpx_mock: HTTPXMock) -> None:
    httpx_mock.add_response(status_code=401, json={"error": {"code": 190, "message": TOKEN}})

    token, *unseen = await look(graph, TOKEN, [NUMBER])

    assert token.level == "sick"
    assert TOKEN not in repr(token)
    assert [(one.part, one.level) for one in unseen] == [
        ("account 10", "warn"),
        ("number 1065", "warn"),
    ]


async def test_an_account_is_put_aside_with_the_last_of_its_numbers(
    graph: Graph, httpx_mock: HTTPXMock
) -> None:
    aside = [replace(NUMBER, put_aside=True), Number("1066", "10", 80)]
    httpx_mock.add_response(url=f"{BASE}/debug_token?input_token={TOKEN}", json=data())
    httpx_mock.add_response(json={"error": {"code": 100}}, status_code=400, is_reusable=True)
    levels = [one.level for one in await look(graph, TOKEN, aside)]
    assert levels == ["well", "sick", "warn", "sick"]
    httpx_mock.add_response(url=f"{BASE}/debug_token?input_token={TOKEN}", json=data())
    levels = [one.level for one in await look(graph, TOKEN, aside[:1])]
    assert levels == ["well", "warn", "warn"]


@pytest.mark.parametrize(
    ("text", "status", "refusal"),
    [
        ("<html>", 502, Refusal(502, None)),
        ("<html>", 200, Refusal(200, None)),
        ("[]", 200, Refusal(200, None)),
        ('{"error": "no"}', 400, Refusal(400, None)),
        ('{"error": {"code": "10"}}', 403, Refusal(403, 10)),
    ],
)
async def test_an_answer_of_something_else_is_a_refusal(
    graph: Graph, httpx_mock: HTTPXMock, text: str, status: int, refusal: Refusal
) -> None:
    httpx_mock.add_response(status_code=status, text=text)
    assert await graph.get("1065") == refusal


def test_a_refusal_says_what_is_known() -> None:
    assert str(Refusal(httpx.codes.BAD_GATEWAY, None)) == "502"
    assert str(EXPIRED) == "401, code 190"
