"""What the doctor makes of what it is told."""

import httpx
import pytest
from pytest_httpx import HTTPXMock

from services.cli import checkups

WELL = {
    "server_version_num": "180000",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "schema": "0003",
}


def sick(findings: list[checkups.Finding]) -> list[str]:
    return [one.part for one in findings if one.cure]


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, []),
        ({"synchronous_commit": "remote_apply"}, []),
        ({"server_version_num": "140011"}, ["postgres"]),
        ({"fsync": "off"}, ["postgres durability"]),
        ({"full_page_writes": "off"}, ["postgres durability"]),
        ({"synchronous_commit": "off"}, ["postgres durability"]),
        ({"schema": "0002"}, ["migrations"]),
        ({"schema": None}, ["migrations"]),
    ],
)
def test_a_database(changes: dict[str, str | None], parts: list[str]) -> None:
    assert sick(checkups.database_findings(WELL | changes, "0003")) == parts


@pytest.mark.parametrize(
    ("version", "policy", "parts"),
    [
        ("7.2.4", "noeviction", []),
        ("10.0.1", "noeviction", []),
        ("6.2.1", "noeviction", ["redis"]),
        ("7.0.0", "allkeys-lru", ["redis eviction"]),
    ],
)
def test_a_redis(version: str, policy: str, parts: list[str]) -> None:
    told = {"redis_version": version, "maxmemory_policy": policy}
    assert sick(checkups.redis_findings(told)) == parts


@pytest.mark.parametrize(
    ("theirs", "is_sick"), [(100, False), (99, False), (112, False), (97, True), (113.5, True)]
)
def test_a_slow_answer_is_no_wrong_clock(theirs: float, is_sick: bool) -> None:  # noqa: FBT001 -- a case
    finding = checkups.clock("redis", theirs, asked=100, answered=111)
    assert bool(finding.cure) is is_sick


def test_files_must_do_for_the_messages_on_the_wire() -> None:
    assert checkups.files(1 << 40).cure
    assert not checkups.files(-checkups.OTHER_FILES).cure


@pytest.mark.parametrize(
    ("status", "code", "cure"), [(401, 190, "new permanent token"), (400, 100, "the number's id")]
)
async def test_what_meta_refuses(httpx_mock: HTTPXMock, status: int, code: int, cure: str) -> None:
    answer = {"error": {"code": code, "message": "no"}}
    httpx_mock.add_response(url="http://meta.test/v25.0/1065", status_code=status, json=answer)
    finding = await checkups.look_at_number("http://meta.test/v25.0", "1065", "a-token")
    assert f"{status}, code {code}" in finding.found
    assert finding.cure
    assert cure in finding.cure
    assert httpx_mock.get_requests()[0].headers["Authorization"] == "Bearer a-token"


async def test_an_answer_of_something_else_is_told_by_its_status(httpx_mock: HTTPXMock) -> None:
    httpx_mock.add_response(status_code=httpx.codes.BAD_GATEWAY, text="<html>")
    finding = await checkups.look_at_number("http://meta.test/v25.0", "1065", "a-token")
    assert finding.found == "Meta refuses it: 502"
