"""Campaigns over HTTP: created, refused, started, moved, looked at."""

import json
import re
import uuid

import httpx
import pytest
from sender_api import NUMBER, TEMPLATE, Api, campaign, rows
from sqlalchemy import text

pytest_plugins = ["sender_server"]

JSON = {"content-type": "application/json"}
PEOPLE = "phone,name\n+12025550123,Ana\n+12025550124,Bea\n"


async def kinds(api: Api, path: str) -> list[str]:
    return [event["kind"] for event in (await api.get(f"{path}/events")).json()["data"]]


async def test_a_draft_is_what_was_asked_for(api: Api):
    path = await api.draft(name="Vaccination", unknown_policy="resend", labels={"team": "a"})
    shown = (await api.get(path)).json()
    assert shown["state"] == "draft"
    assert (shown["name"], shown["phone_number_id"]) == ("Vaccination", NUMBER)
    assert shown["template"] == TEMPLATE
    assert (shown["unknown_policy"], shown["unknown_window"]) == ("resend", 3600)
    assert shown["labels"] == {"team": "a"}
    assert shown["counts"]["total"] == 0
    assert uuid.UUID(shown["id"]).version == 7


@pytest.mark.parametrize(
    "wrong",
    [
        {"surprise": 1},
        {"send_window": {"from": "08:00"}},
        {"name": ""},
        {"phone_number_id": "+12025550123"},
        {"template": {"name": "x"}},
        {"template": {**TEMPLATE, "surprise": 1}},
        {"template": {**TEMPLATE, "components": [{"type": "body", "text": "{{"}]}},
        {"default_country": "gb"},
        {"max_attempts": 0},
        {"unknown_policy": "guess"},
        {"unknown_window": 179},
        {"endpoint": "elsewhere"},
        {"phone_number_id": "999"},
        {"name": "a\u0000b"},
    ],
)
async def test_a_draft_that_is_wrong_is_refused(api: Api, engine, wrong):
    await api.register()
    answer = await api.post("/v1/campaigns", json=campaign(**wrong))
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert await rows(engine, "SELECT count(*) FROM campaigns") == [(0,)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"' + "é" * 33_000 + '"', "larger than 64 KiB"),
        ("NaN", "a number or a character that JSON has not"),
        ("-Infinity", "a number or a character that JSON has not"),
        ('"half \\ud83d of one"', "a number or a character that JSON has not"),
    ],
    ids=["large", "NaN", "Infinity", "half"],
)
async def test_components_are_json_and_not_large(api: Api, text, said):
    await api.register()
    body = json.dumps(campaign()).replace('"{{name}}"', text)
    answer = await api.post("/v1/campaigns", content=body, headers=JSON)
    assert answer.status_code == 422, answer.text
    assert said in answer.json()["errors"][0]["message"]


async def test_an_unknown_campaign_is_404(api: Api):
    path = f"/v1/campaigns/{uuid.uuid4()}"
    assert (await api.get(path)).status_code == 404
    assert (await api.post(f"{path}/start")).status_code == 404
    assert (await api.upload(path, PEOPLE)).status_code == 404
    assert (await api.get("/v1/campaigns/1")).status_code == 422


async def test_an_empty_campaign_cannot_be_started(api: Api):
    path = await api.draft()
    answer = await api.post(f"{path}/start")
    assert answer.status_code == 409
    assert "no recipients" in answer.json()["detail"]
    assert (await api.get(path)).json()["state"] == "draft"


async def test_a_template_needs_its_columns(api: Api):
    path = await api.draft()
    answer = await api.upload(path, "phone,city\n+12025550123,Pune\n")
    assert answer.status_code == 422
    needs = "the template needs columns that the file lacks: name; columns found: phone, city"
    assert answer.json()["detail"] == needs
    (upload,) = (await api.get(path)).json()["uploads"]
    assert (upload["state"], upload["error"]) == ("failed", needs.partition(";")[0])


@pytest.mark.parametrize("audience", ["open", "closed"])
async def test_a_draft_is_open_and_shows_what_its_start_will_make_of_it(api: Api, audience):
    path = await api.draft(audience=audience)
    shown = (await api.get(path)).json()
    assert (shown["audience"], shown["keep_open"]) == ("open", audience == "open")
    assert (await api.upload(path, PEOPLE)).status_code == 201
    assert (await api.post(f"{path}/start")).json()["audience"] == audience


async def test_start_closes_the_audience(api: Api):
    path = await api.started()
    shown = (await api.get(path)).json()
    assert (shown["state"], shown["audience"]) == ("running", "closed")
    assert (await api.upload(path, PEOPLE)).status_code == 409


@pytest.mark.parametrize(
    ("draft", "body"), [({"audience": "open"}, None), ({}, {"keep_open": True})]
)
async def test_start_may_keep_the_audience_open(api: Api, draft, body):
    path = await api.draft(**draft)
    await api.upload(path, "phone,name\n+12025550123,Ana\n")
    started = (await api.post(f"{path}/start", json=body)).json()
    assert (started["audience"], started["keep_open"]) == ("open", True)
    assert (await api.upload(path, PEOPLE)).json()["accepted"] == 1
    assert (await api.post(f"{path}/close")).json()["audience"] == "closed"
    assert (await api.post(f"{path}/close")).status_code == 409


async def test_start_waits_for_no_upload(api: Api, engine):
    path = await api.draft()
    await api.upload(path, PEOPLE)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE uploads SET state = 'running'"))
    answer = await api.post(f"{path}/start")
    assert answer.status_code == 409
    assert "upload" in answer.json()["detail"]
    async with engine.begin() as connection:
        old = text("UPDATE uploads SET heartbeat_at = now() - interval '3 minutes'")
        await connection.execute(old)
    assert (await api.get(path)).json()["uploads"][0]["state"] == "failed"
    assert (await api.post(f"{path}/start")).status_code == 200


async def test_a_life(api: Api):
    path = await api.started()
    paused = (await api.post(f"{path}/pause")).json()
    assert (paused["state"], paused["pause_reason"]) == ("paused", "operator")
    assert (await api.post(f"{path}/resume")).json()["state"] == "running"
    cancelled = (await api.post(f"{path}/cancel")).json()
    assert (cancelled["state"], cancelled["audience"]) == ("cancelled", "closed")
    assert await kinds(api, path) == [
        *("created", "uploaded", "started", "paused", "resumed", "cancelled"),
    ]
    events = (await api.get(f"{path}/events?limit=4")).json()
    assert events["data"][3]["actor"] == "key:admin"
    assert events["data"][3]["details"] == {"reason": "operator"}
    rest = (await api.get(f"{path}/events", params={"cursor": events["next_cursor"]})).json()
    assert [event["kind"] for event in rest["data"]] == ["resumed", "cancelled"]
    assert rest["next_cursor"] is None


CHANGES = {"change": None, "close": None, "upload": None}
# What each state allows and leads to; None: it stays. `waiting` is paused before its start.
MOVES: dict[str, dict[str, str | None]] = {
    "draft": {"start": "running", "schedule": "scheduled", "cancel": "cancelled", **CHANGES},
    "scheduled": {"schedule": None, "pause": "paused", "cancel": "cancelled", **CHANGES},
    "running": {"pause": "paused", "cancel": "cancelled", **CHANGES},
    "paused": {"resume": "running", "cancel": "cancelled", **CHANGES},
    "waiting": {"schedule": "scheduled", "resume": "scheduled", "cancel": "cancelled"} | CHANGES,
    "completed": {},
    "cancelled": {},
}
PUT_INTO = """
UPDATE campaigns SET audience = 'open',
    state = CASE WHEN :state = 'waiting' THEN 'paused' ELSE :state END,
    pause_reason = CASE WHEN :state IN ('paused', 'waiting') THEN 'operator' END,
    start_at = CASE WHEN :state IN ('scheduled', 'waiting') THEN now() + interval '1 hour' END,
    started_at = CASE WHEN :state NOT IN ('draft', 'scheduled', 'waiting') THEN now() END
"""


async def give(api: Api, path: str, command: str) -> httpx.Response:
    match command:
        case "upload":
            return await api.upload(path, PEOPLE)
        case "change":
            return await api.patch(path, json={"weight": 2})
        case "schedule":
            return await api.post(f"{path}/start", json={"at": "2099-01-01T00:00:00Z"})
        case _:
            return await api.post(f"{path}/{command}")


@pytest.mark.parametrize("state", MOVES)
async def test_a_command_moves_the_campaign_or_names_its_state(api: Api, engine, state):
    path = await api.draft()
    await api.upload(path, PEOPLE)
    for command in ("start", "schedule", "pause", "resume", "cancel", *CHANGES):
        async with engine.begin() as connection:
            await connection.execute(text(PUT_INTO), {"state": state})
        (was, before), answer = await seen(api, path), await give(api, path, command)
        now, events = await seen(api, path)
        if command in MOVES[state]:
            assert answer.is_success, answer.text
            assert now == (MOVES[state][command] or was), command
            assert len(events) == len(before) + 1
        else:
            assert answer.status_code == 409, command
            assert f"is {was}" in answer.json()["detail"]
            assert (now, events) == (was, before)


async def seen(api: Api, path: str) -> tuple[str, list[str]]:
    return (await api.get(path)).json()["state"], await kinds(api, path)


async def test_what_holds_a_campaign(api: Api, engine):
    async def held() -> dict[str, dict[str, object]]:
        holding = (await api.get(path)).json()["holding"]
        return {one["reason"]: one for one in holding if one["reason"] != "no_worker"}

    path = await api.draft()
    assert set(await held()) == {"not_started", "no_recipients"}
    await api.upload(path, PEOPLE)
    await api.post(f"{path}/start")
    assert await held() == {}
    await api.post("/v1/halt")
    await api.post(f"/v1/phone-numbers/{NUMBER}/pause")
    await api.post(f"{path}/pause")
    async with engine.begin() as connection:
        later = "UPDATE messages SET due_at = now() + interval '1 hour'"
        await connection.execute(text(later))
    found = await held()
    assert set(found) == {"halted", "number_paused", "campaign_paused", "nothing_due"}
    assert found["halted"]["cure"] == "POST /v1/unhalt"
    assert found["campaign_paused"]["cure"] == f"POST {path}/resume"
    assert found["number_paused"]["detail"] == "operator"
    assert found["nothing_due"]["ends_at"] is not None
    await api.post(f"{path}/cancel")
    assert await held() == {}


async def test_what_holds_a_campaign_whose_template_meta_does_not_know(api: Api, engine):
    path = await api.draft(template={"name": "remindr", "language": "en"})
    async with engine.begin() as connection:
        paused = "UPDATE campaigns SET state = 'paused', pause_reason = 'template'"
        await connection.execute(text(paused))
        event = """
            INSERT INTO campaign_events (campaign_id, kind, actor, details)
            SELECT id, 'paused', 'meta', '{"reason": "template", "code": 132001}' FROM campaigns
        """
        await connection.execute(text(event))
    holding = (await api.get(path)).json()["holding"]
    (held,) = [one for one in holding if one["reason"] == "campaign_paused"]
    assert held["detail"] == "template: Meta's code 132001"
    assert "the template remindr approved in en, exactly so" in held["cure"]
    assert f"then POST {path}/resume; for another template" in held["cure"]


async def test_the_list_is_paged_from_the_newest(api: Api):
    paths = [await api.draft(name=str(place)) for place in range(5)]
    names, cursor = [], None
    while True:
        params = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        answer = (await api.get("/v1/campaigns", params=params)).json()
        names += [one["name"] for one in answer["data"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert names == ["4", "3", "2", "1", "0"]
    assert answer["data"][0]["template"] == {"name": TEMPLATE["name"], "language": "en"}
    await api.post(f"{paths[2]}/cancel")
    found = (await api.get("/v1/campaigns?state=cancelled")).json()["data"]
    assert [one["name"] for one in found] == ["2"]


@pytest.mark.parametrize("cursor", ["%", "-1", "zzzzzzzzzzzzzzzzzzzz"])
async def test_a_cursor_of_someone_else_is_refused(api: Api, cursor):
    answer = await api.get("/v1/campaigns", params={"cursor": cursor})
    assert answer.status_code == 422


async def test_errors_by_code(api: Api, engine):
    path = await api.started()
    async with engine.begin() as connection:
        await connection.execute(
            text("""
            INSERT INTO counter_deltas (campaign_id, minute, status, error_code, entered, departed)
            SELECT id, now(), 'failed', 131026, 3, 0 FROM campaigns
            """)
        )
    answer = (await api.get(f"{path}/errors")).json()
    assert answer["data"] == [{"code": 131026, "title": "Message undeliverable", "met": 3}]


async def test_moves_wake_the_workers(api: Api, engine):
    heard: list[str] = []
    path = await api.started()
    async with engine.connect() as connection:
        raw = (await connection.get_raw_connection()).driver_connection
        await raw.add_listener("headrace", lambda *event: heard.append(event[2]))
        for move in ("pause", "resume", "cancel"):
            assert (await api.post(f"{path}/{move}")).status_code == 200
        await api.register(rate=10)
        await raw.execute("SELECT 1")
        await raw.reset()
    assert heard == ["headrace"] * 4


async def test_an_upload_whose_process_has_died_says_so(api: Api, engine):
    path = await api.draft()
    await api.upload(path, PEOPLE)
    async with engine.begin() as connection:
        old = "state = 'running', heartbeat_at = now() - interval '3 minutes'"
        await connection.execute(text(f"UPDATE uploads SET {old}"))
    (shown,) = (await api.get(path)).json()["uploads"]
    assert (shown["state"], shown["error"]) == (
        "failed",
        "its process has died; upload the file again",
    )


async def test_times_end_in_z_everywhere(api: Api):
    path = await api.draft(expires_at="2099-01-01T02:00:00+02:00")
    await api.upload(path, PEOPLE)
    await api.post(f"{path}/start", json={"at": "2098-01-01T00:00:00+02:00"})
    said = [await api.get(one) for one in (path, "/v1/campaigns", f"{path}/events")]
    said += [await api.get(f"{path}/{one}") for one in ("recipients", "export")]
    said += [await api.post(f"{path}/check"), await api.get("/v1/phone-numbers")]
    for answer in said:
        assert "+00:00" not in answer.text
        assert re.search(r"T\d\d:\d\d:\d\d(\.\d+)?Z", answer.text), answer.text
