"""Business numbers and the red button."""

import pytest
from sender_api import NUMBER, Api, rows
from sqlalchemy import text

pytest_plugins = ["sender_server"]

PATH = f"/v1/phone-numbers/{NUMBER}"


async def test_a_number_is_registered_and_changed(api: Api):
    first = (await api.register()).json()
    assert (first["rate"], first["headroom"], first["state"]) == (80, 0.2, "active")
    await api.post(f"{PATH}/pause")
    second = (await api.register(rate=400, headroom=0)).json()
    assert (second["rate"], second["headroom"]) == (400, 0)
    assert second["state"] == "paused"
    shown = (await api.get(PATH)).json()
    assert shown == second | {"effective_rate": 400, "sends_last_minute": 0}
    assert (await api.get("/v1/phone-numbers")).json() == {"data": [shown], "next_cursor": None}


async def test_what_is_not_given_of_a_number_stays(api: Api, monkeypatch):
    monkeypatch.setenv("HEADRACE_ACCESS_TOKEN_SHOP", "TEST-TOKEN-02")
    first = (await api.register(rate=5000, headroom=0, portfolio_id="7", token="SHOP")).json()
    assert (await api.put(PATH, json={"waba_id": "300"})).json() == first | {"waba_id": "300"}
    assert (await api.put(PATH, json={})).json()["waba_id"] == "300"
    assert (await api.put(PATH, json={"rate": 80, "waba_id": None})).json()["rate"] == 80
    bare = (await api.put(PATH, json={"portfolio_id": None, "token": None})).json()
    changed = {"waba_id": "300", "rate": 80, "portfolio_id": None, "token": None}
    assert bare == first | changed | {"campaign_rate": 79.21}


async def test_a_new_number_needs_its_account(api: Api, engine):
    for body in ({}, {"rate": 5}, {"waba_id": None}):
        answer = await api.put(PATH, json=body)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"] == "body.waba_id"
    assert await rows(engine, "SELECT count(*) FROM numbers") == [(0,)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": 0},
        {"headroom": 1},
        {"headroom": -0.1},
        {"waba_id": ""},
        {"surprise": 1},
        {"token": "a b"},
        {"token": "clinic_file"},
        {"token": "nobody_has_set_it"},
    ],
)
async def test_a_wrong_number_is_refused(api: Api, engine, wrong):
    assert (await api.register(**wrong)).status_code == 422
    assert await rows(engine, "SELECT count(*) FROM numbers") == [(0,)]


async def test_the_missing_token_is_named(api: Api, monkeypatch):
    answer = await api.register(token="clinic")
    assert "HEADRACE_ACCESS_TOKEN_CLINIC" in answer.json()["detail"]
    monkeypatch.setenv("HEADRACE_ACCESS_TOKEN_CLINIC", "TEST-TOKEN-02")
    answer = await api.register(token="clinic")
    assert answer.json()["token"] == "clinic"
    assert "TEST-TOKEN-02" not in answer.text


async def test_an_id_must_be_a_number(api: Api):
    assert (await api.put("/v1/phone-numbers/x", json={"waba_id": "1"})).status_code == 422
    assert (await api.get(PATH)).status_code == 404
    assert (await api.post(f"{PATH}/pause")).status_code == 404


async def test_pause_and_resume(api: Api):
    await api.register()
    assert (await api.post(f"{PATH}/resume")).status_code == 409
    paused = (await api.post(f"{PATH}/pause")).json()
    assert (paused["state"], paused["paused_reason"]) == ("paused", "operator")
    again = await api.post(f"{PATH}/pause")
    assert again.status_code == 409
    assert "paused (operator)" in again.json()["detail"]
    resumed = (await api.post(f"{PATH}/resume")).json()
    assert (resumed["state"], resumed["paused_reason"]) == ("active", None)


async def test_a_pause_that_is_over_is_none(api: Api, engine):
    await api.register()
    change = """
        UPDATE numbers SET state = 'paused', paused_reason = 'meta:130429',
            paused_until = now() + make_interval(secs => :seconds)
    """
    async with engine.begin() as connection:
        await connection.execute(text(change), {"seconds": 3600})
    shown = (await api.get(PATH)).json()
    assert (shown["state"], shown["paused_reason"]) == ("paused", "meta:130429")
    async with engine.begin() as connection:
        await connection.execute(text(change), {"seconds": -1})
    shown = (await api.get(PATH)).json()
    assert (shown["state"], shown["paused_reason"], shown["paused_until"]) == ("active", None, None)
    assert (await api.post(f"{PATH}/resume")).status_code == 409
    # An operator's pause replaces one with an end.
    assert (await api.post(f"{PATH}/pause")).json()["paused_until"] is None


async def test_the_red_button_may_be_pressed_twice(api: Api, engine):
    for call, halted in [("halt", True), ("halt", True), ("unhalt", False), ("unhalt", False)]:
        assert (await api.post(f"/v1/{call}")).json() == {"halted": halted}
        assert await rows(engine, "SELECT halted FROM installation") == [(halted,)]
        assert (await api.get("/v1/halt")).json() == {"halted": halted}


async def test_the_list_comes_in_pages(api: Api):
    for number in ("103", "101", "102"):
        await api.register(number)
    first = (await api.get("/v1/phone-numbers", params={"limit": 2})).json()
    following = {"limit": 2, "cursor": first["next_cursor"]}
    rest = (await api.get("/v1/phone-numbers", params=following)).json()
    found = [one["phone_number_id"] for one in first["data"] + rest["data"]]
    assert (found, rest["next_cursor"]) == (["101", "102", "103"], None)
