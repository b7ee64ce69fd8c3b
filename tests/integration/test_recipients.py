"""Recipients as the API lists them: in order, filtered, one by one."""

import json
from datetime import datetime
from itertools import chain

import pytest
from sender_api import Api, people
from sqlalchemy import text

from services.sender.audience.listing import SCAN

pytest_plugins = ["sender_server"]

FAIL = """
    UPDATE messages SET status = 'failed', due_at = NULL, error_code = :code
    WHERE id IN (SELECT id FROM messages ORDER BY id OFFSET :first LIMIT :count)
"""


async def fail(engine, code: int, first: int, count: int = 1) -> None:
    async with engine.begin() as connection:
        values = {"code": code, "first": first, "count": count}
        await connection.execute(text(FAIL), values)


async def pages(api: Api, path: str, **params: object) -> list[list[str]]:
    """The phones of each page until the last one."""
    found = []
    while True:
        answer = (await api.get(f"{path}/recipients", params=params)).json()
        found.append([one["phone"] for one in answer["data"]])
        if answer["next_cursor"] is None:
            return found
        params["cursor"] = answer["next_cursor"]


async def test_recipients_are_listed_in_their_order(api: Api):
    path = await api.draft()
    await api.upload(path, people(5))
    found = await pages(api, path, limit=2)
    assert [len(page) for page in found] == [2, 2, 1]
    assert list(chain(*found)) == [f"4915112{n:06}" for n in range(5)]


async def test_a_recipient_is_shown_as_it_was_uploaded(api: Api):
    path = await api.draft()
    line = {
        "phone": "+12025550123",
        "name": 'Zoë "😀"\\',
        "external_id": "é",
        "metadata": {"id": 12345678901234567890, "half": 0.5, "none": None},
    }
    await api.upload(path, json.dumps(line), **{"content-type": "application/x-ndjson"})
    answer = await api.get(f"{path}/recipients")
    assert answer.headers["content-type"] == "application/json"
    (listed,) = answer.json()["data"]
    assert (listed["phone"], listed["external_id"]) == ("12025550123", "é")
    assert (listed["parameters"], listed["metadata"]) == ({"name": line["name"]}, line["metadata"])
    assert datetime.fromisoformat(listed["due_at"]).tzinfo is not None
    one = (await api.get(f"{path}/recipients/{listed['id']}")).json()
    assert one == {**listed, "attempts": []}


async def test_an_empty_list(api: Api):
    path = await api.draft()
    answer = await api.get(f"{path}/recipients?status=failed")
    assert answer.json() == {"data": [], "next_cursor": None}


async def test_a_filtered_page_may_be_short_but_goes_on(api: Api, engine):
    path = await api.draft()
    await api.upload(path, people(SCAN + 5))
    await fail(engine, 131026, SCAN + 4)
    first = (await api.get(f"{path}/recipients?status=failed")).json()
    assert first["data"] == []
    params = {"status": "failed", "cursor": first["next_cursor"]}
    second = (await api.get(f"{path}/recipients", params=params)).json()
    assert [one["error_title"] for one in second["data"]] == ["Message undeliverable"]
    assert second["next_cursor"] is None


async def test_one_recipient_with_its_attempts(api: Api, engine):
    path = await api.draft()
    await api.upload(path, "phone,Name,external_id\n+12025550123,Ana,A-1\n")
    listed = (await api.get(f"{path}/recipients")).json()["data"][0]
    async with engine.begin() as connection:
        await connection.execute(
            text("""
            INSERT INTO attempts (message_id, attempt, outcome, error_code, details)
            VALUES (:id, 1, 'retry', 131000, 'try later')
            """),
            {"id": listed["id"]},
        )
    shown = (await api.get(f"{path}/recipients/{listed['id']}")).json()
    assert (shown["phone"], shown["external_id"]) == ("12025550123", "A-1")
    assert shown["parameters"] == {"name": "Ana"}
    assert shown["status"] == "pending"
    (attempt,) = shown["attempts"]
    assert (attempt["outcome"], attempt["error_title"]) == ("retry", "Something went wrong")
    other = await api.draft()
    assert (await api.get(f"{other}/recipients/{listed['id']}")).status_code == 404


async def test_a_code_finds_its_recipients_however_far_they_are(api: Api, engine):
    path = await api.draft()
    await api.upload(path, people(SCAN + 5))
    await fail(engine, 131026, SCAN, 3)
    await fail(engine, 131049, SCAN + 3)
    last = [f"4915112{n:06}" for n in range(SCAN, SCAN + 3)]
    assert await pages(api, path, error_code=131026) == [last]
    assert await pages(api, path, error_code=131026, limit=2) == [last[:2], last[2:]]
    assert await pages(api, path, error_code=131026, status="failed") == [last]
    assert await pages(api, path, error_code=131026, status="sent") == [[]]
    assert await pages(api, path, error_code=131042) == [[]]


@pytest.mark.parametrize("code", ["-1", "x", str(1 << 31)])
async def test_a_code_must_be_a_number(api: Api, code):
    path = await api.draft()
    answer = await api.get(f"{path}/recipients", params={"error_code": code})
    assert answer.status_code == 422
