"""What a call does not know is refused, in the query as in the body."""

import pytest
from sender_api import NUMBER, Api, campaign, people

from services.sender.api.paging import after, cursor_of

pytest_plugins = ["sender_server"]


async def refused(api: Api, method: str, path: str, **request: object) -> str:
    """The field of the one error."""
    answer = await api.request(method, path, **request)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    (error,) = answer.json()["errors"]
    return error["field"]


async def test_a_misspelt_query_is_refused(api: Api):
    path = await api.started()
    for place in ("/v1/campaigns", path, f"{path}/recipients", f"{path}/rejects"):
        assert await refused(api, "GET", f"{place}?staus=failed") == "query.staus"
    assert await refused(api, "GET", f"{path}/export?fromat=ndjson") == "query.fromat"
    assert await refused(api, "POST", f"{path}/pause?reason=x") == "query.reason"
    answer = await api.upload(f"{path}", people(1))
    assert (await api.post(f"{path}/recipients?x=1", content=b"phone")).status_code == 422
    assert answer.status_code == 409  # its body is its own


async def test_what_is_known_is_taken(api: Api):
    path = await api.started()
    for query in ("limit=5&status=pending&error_code=1", f"cursor={cursor_of(5)}&limit=1"):
        assert (await api.get(f"{path}/recipients?{query}")).status_code == 200
    assert (await api.get("/v1/campaigns?state=running&limit=5")).status_code == 200
    assert (await api.get(f"{path}/export?format=ndjson")).status_code == 200


CALLS = ["pause", "resume", "close", "cancel", "check"]


@pytest.mark.parametrize("call", CALLS)
async def test_a_body_where_none_is_read_is_refused(api: Api, call):
    path = await api.started()
    before = (await api.get(path)).json()
    assert await refused(api, "POST", f"{path}/{call}", json={"reason": "x"}) == "body"
    assert (await api.get(path)).json() == before


@pytest.mark.parametrize("path", ["/v1/halt", f"/v1/phone-numbers/{NUMBER}/pause"])
async def test_so_it_is_beside_campaigns(api: Api, path):
    await api.register()
    assert await refused(api, "POST", path, json={"reason": "x"}) == "body"
    for nothing in (b"", b"{}", b" {} ", b"null"):
        answer = await api.post(path, content=nothing)
        await api.post(f"/v1/phone-numbers/{NUMBER}/resume")
        assert answer.status_code == 200, nothing


async def test_nobody_without_a_key_learns_what_is_known(api: Api):
    del api.headers["authorization"]
    assert (await api.get("/v1/campaigns?staus=failed")).status_code == 401


@pytest.mark.parametrize("number", [0, 1, 35, 36, 10**9, (1 << 63) - 1])
def test_a_cursor_comes_back_as_it_went(number):
    assert after(cursor_of(number)) == number


@pytest.mark.parametrize("cursor", ["zzz", "5", "0000", "", "-1", "é" * 9, cursor_of(1 << 63)])
async def test_a_cursor_of_nobody_is_refused(api: Api, cursor):
    answer = await api.get("/v1/campaigns", params={"cursor": cursor})
    assert answer.status_code == 422
    assert "take next_cursor as it comes" in answer.json()["detail"]


async def test_a_body_without_its_type_is_415(api: Api):
    for kind in ("application/x-www-form-urlencoded", "text/plain"):
        headers = {"content-type": kind}
        answer = await api.post("/v1/campaigns", content=b"{}", headers=headers)
        assert (answer.status_code, answer.json()["status"]) == (415, 415)
        assert "application/json" in answer.json()["detail"]
    assert (await api.post("/v1/campaigns", json=campaign())).status_code == 422  # no such number
    assert (await api.post("/v1/campaigns", json=[1])).status_code == 422


async def test_broken_json_is_told_by_its_place_alone(api: Api):
    headers = {"content-type": "application/json"}
    broken = b'{"name": "c",\n "to": "+12025550123",}'
    answer = await api.post("/v1/campaigns", content=broken, headers=headers)
    (error,) = answer.json()["errors"]
    assert error == {"field": "body", "message": "no JSON at line 2, column 23"}
    answer = await api.post("/v1/campaigns", content=b'{"name": "\xff"}', headers=headers)
    assert (answer.status_code, answer.json()["detail"]) == (400, "the body is not JSON in UTF-8")
