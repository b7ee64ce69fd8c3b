"""What stands against a start and what would spoil it, said before the start and at its refusal."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from planting import run
from redis.asyncio import Redis
from sender_api import NUMBER, Api, add_key, people, rows
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.api.keys import Scope
from services.sender.orchestration.scheduler import start_scheduled
from services.sender.pipeline.bucket import Bucket

pytest_plugins = ["sender_server"]

MEMBERS = {
    *("ready", "problems", "warnings", "people", "opted_out", "not_allowed", "rate", "seconds"),
    *("ends_at", "webhooks_seen_at"),
}
NOTHING_AHEAD = {"no_webhooks"}
RATE = 64 / 1.01


async def checked(api: Api, path: str) -> dict[str, Any]:
    answer = await api.post(f"{path}/check")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found.keys() == MEMBERS
    for one in (*found["problems"], *found["warnings"]):
        assert one.keys() == {"reason", "detail", "cure"}
        assert all(one.values()), one
    assert found["ready"] == (not found["problems"])
    return found


def reasons(found: list[dict[str, str]]) -> list[str]:
    return [one["reason"] for one in found]


async def problems(api: Api, path: str) -> list[str]:
    return reasons((await checked(api, path))["problems"])


async def warnings(api: Api, path: str) -> set[str]:
    return set(reasons((await checked(api, path))["warnings"]))


async def warning(api: Api, path: str, reason: str) -> dict[str, str]:
    found = (await checked(api, path))["warnings"]
    named: list[dict[str, str]] = [one for one in found if one["reason"] == reason]
    assert len(named) == 1
    return named[0]


async def refused(api: Api, path: str, **body: Any) -> dict[str, Any]:
    answer = await api.post(f"{path}/start", json=body)
    assert answer.status_code == 409, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found.keys() == MEMBERS | {"type", "title", "status", "detail", "errors"}
    assert (found["ready"], found["status"]) == (False, 409)
    assert found["detail"] == "; ".join(one["detail"] for one in found["problems"])
    return found


def ahead(**distance: float) -> str:
    return (datetime.now(UTC) + timedelta(**distance)).isoformat()


async def audience(api: Api, count: int = 2, **changes: Any) -> str:
    """A draft with so many people."""
    path = await api.draft(**changes)
    assert (await api.upload(path, people(count))).status_code == 201
    return path


async def hear(engine: AsyncEngine) -> None:
    heard = "INSERT INTO webhook_heartbeats (phone_number_id, received_at) VALUES (:number, now())"
    await run(engine, heard, number=NUMBER)


async def test_a_campaign_with_nothing_against_it(api: Api, engine: AsyncEngine) -> None:
    path = await audience(api, 640)
    await hear(engine)
    before = await rows(engine, "SELECT state, audience FROM campaigns")

    found = await checked(api, path)

    assert (found["ready"], found["problems"], found["warnings"]) == (True, [], [])
    assert (found["people"], found["opted_out"], found["not_allowed"]) == (640, 0, 0)
    assert (found["rate"], found["seconds"]) == (pytest.approx(RATE, abs=0.01), 11)
    assert datetime.fromisoformat(found["webhooks_seen_at"]) < datetime.now(UTC)
    left = datetime.fromisoformat(found["ends_at"]) - datetime.now(UTC)
    assert timedelta(seconds=1) < left <= timedelta(seconds=11)
    assert await rows(engine, "SELECT state, audience FROM campaigns") == before
    assert (await api.post(f"{path}/start")).status_code == 200


async def test_the_rate_is_the_buckets_own(api: Api, redis: Redis) -> None:
    for rate, headroom in ((80, 0.2), (10, 0.25), (1, 0.5), (1000, 0.0), (7, 0.9)):
        path = await api.draft()
        await api.register(rate=rate, headroom=headroom)
        slots = await Bucket(redis, f"{rate}").book(1, rate, headroom)
        found = await checked(api, path)
        assert found["rate"] == pytest.approx(1 / slots.spacing, abs=0.01)


async def test_reading_is_enough_and_an_unknown_campaign_is_404(
    api: Api, engine: AsyncEngine
) -> None:
    path = await audience(api)
    await add_key(engine, "a-key-that-only-reads", Scope.READ)
    headers = {"authorization": "Bearer a-key-that-only-reads"}
    assert (await api.post(f"{path}/check", headers=headers)).status_code == 200
    assert (await api.post(f"{path}/start", headers=headers)).status_code == 403
    unknown = "/v1/campaigns/01900000-0000-7000-8000-000000000000/check"
    assert (await api.post(unknown)).status_code == 404


# Problems


async def test_no_recipients(api: Api) -> None:
    path = await api.draft()
    found = await checked(api, path)
    assert reasons(found["problems"]) == ["no_recipients"]
    assert (found["people"], found["seconds"], found["ends_at"]) == (0, 0, None)
    assert found["problems"][0]["cure"] == f"POST {path}/recipients"


async def test_an_expiry_that_has_passed(api: Api, engine: AsyncEngine) -> None:
    path = await audience(api)
    await run(engine, "UPDATE campaigns SET expires_at = now() - interval '1 second'")
    assert await problems(api, path) == ["expired"]
    await api.patch(path, json={"expires_at": ahead(hours=1)})
    assert await problems(api, path) == []


async def test_an_upload_under_way_where_the_start_closes_the_audience(
    api: Api, engine: AsyncEngine
) -> None:
    closing, open_ = await audience(api), await audience(api, audience="open")
    await run(engine, "UPDATE uploads SET state = 'running', heartbeat_at = now()")
    assert await problems(api, closing) == ["upload_under_way"]
    assert await problems(api, open_) == []
    assert (await api.post(f"{closing}/start", json={"keep_open": True})).status_code == 200


async def test_a_token_that_is_not_set(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_ACCESS_TOKEN_SHOP", "a-secret-of-the-test")
    path = await audience(api)
    assert (await api.register(token="SHOP")).status_code == 200
    assert await problems(api, path) == []
    monkeypatch.delenv("HEADRACE_ACCESS_TOKEN_SHOP")
    (found,) = (await refused(api, path))["problems"]
    assert found["reason"] == "token_missing"
    assert "HEADRACE_ACCESS_TOKEN_SHOP" in found["detail"]


async def test_a_start_after_the_expiry(api: Api) -> None:
    path = await audience(api, expires_at=ahead(hours=1))
    found = await refused(api, path, at=ahead(hours=2))
    assert reasons(found["problems"]) == ["expires_before_start"]
    assert found["people"] == 2
    assert datetime.fromisoformat(found["ends_at"]) > datetime.now(UTC) + timedelta(hours=1.9)
    assert (await api.get(path)).json()["state"] == "draft"


@pytest.mark.parametrize(
    ("state", "pause_reason", "cure"),
    [
        ("running", None, "GET "),
        ("paused", "operator", "/resume"),
        ("completed", None, "a new one"),
        ("cancelled", None, "a new one"),
    ],
)
async def test_what_is_past_its_start(
    api: Api, engine: AsyncEngine, state: str, pause_reason: str | None, cure: str
) -> None:
    path = await audience(api)
    move = "UPDATE campaigns SET started_at = now(), state = :state, pause_reason = :reason"
    await run(engine, move, state=state, reason=pause_reason)
    found = await checked(api, path)
    (problem,) = found["problems"]
    assert problem["reason"] == "wrong_state"
    assert f"is {state}" in problem["detail"]
    assert cure in problem["cure"]
    assert found["people"] == 2
    ended = state in ("completed", "cancelled")
    assert (found["ends_at"] is None) == ended
    assert set(reasons(found["warnings"])) == (set() if ended else NOTHING_AHEAD)
    for body in ({}, {"at": ahead(hours=1)}):
        assert (await refused(api, path, **body))["problems"][0]["reason"] == "wrong_state"


async def test_all_at_once_and_in_the_refusal_too(
    api: Api, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_ACCESS_TOKEN_SHOP", "a-secret-of-the-test")
    path = await api.draft()
    await api.register(token="SHOP")
    await api.upload(path, people(1) + "nothing,Ana\n")
    monkeypatch.delenv("HEADRACE_ACCESS_TOKEN_SHOP")
    await api.post(f"/v1/phone-numbers/{NUMBER}/pause")
    await api.post("/v1/halt")
    await run(engine, "UPDATE campaigns SET expires_at = now() - interval '1 second'")
    await run(engine, "INSERT INTO uploads (campaign_id) SELECT id FROM campaigns")
    await hear(engine)

    found = await checked(api, path)

    expected = ["expired", "upload_under_way", "token_missing"]
    assert reasons(found["problems"]) == expected
    assert reasons(found["warnings"]) == [
        *("halted", "number_paused", "rows_refused", "audience_closes")
    ]
    told = await refused(api, path)
    for moving in (found, told):
        del moving["ends_at"]
    assert found == {name: told[name] for name in found}


async def test_of_two_starts_at_once_one_is_told_that_it_came_second(api: Api) -> None:
    path = await audience(api)
    first, second = await asyncio.gather(*(api.post(f"{path}/start") for _ in range(2)))
    assert sorted((first.status_code, second.status_code)) == [200, 409]
    (refusal,) = [one.json() for one in (first, second) if one.status_code == 409]
    assert reasons(refusal["problems"]) == ["wrong_state"]
    assert "is running" in refusal["detail"]


# Scheduled


async def test_a_scheduled_campaign_is_looked_at_as_its_start_will(
    api: Api, engine: AsyncEngine
) -> None:
    path = await api.draft()
    at = ahead(hours=2)
    assert (await api.post(f"{path}/start", json={"at": at})).status_code == 200
    assert await problems(api, path) == ["no_recipients"]
    await run(engine, "UPDATE campaigns SET start_at = now() - interval '1 second'")
    assert await start_scheduled(engine) == 0
    await api.post(f"{path}/start", json={"at": at})
    await api.upload(path, people(2))

    found = await checked(api, path)

    assert found["ready"]
    begins = datetime.fromisoformat(found["ends_at"]) - timedelta(seconds=found["seconds"])
    assert begins == datetime.fromisoformat(at)
    assert (await refused(api, path))["problems"][0]["cure"] == f"POST {path}/start with another at"
    await run(engine, "UPDATE campaigns SET start_at = now() - interval '1 second'")
    assert await start_scheduled(engine) == 1


async def test_what_holds_a_scheduled_campaign_is_all_of_it(api: Api, engine: AsyncEngine) -> None:
    path = await api.draft()
    await api.post(f"{path}/start", json={"at": ahead(hours=2)})
    await run(engine, "UPDATE campaigns SET expires_at = now() - interval '1 second'")
    held = {one["reason"]: one for one in (await api.get(path)).json()["holding"]}
    assert held["not_ready"]["detail"] == "the campaign has expired; the campaign has no recipients"
    assert f"POST {path}/recipients" in held["not_ready"]["cure"]


# Warnings


async def test_what_makes_it_wait(api: Api, engine: AsyncEngine) -> None:
    path = await audience(api)
    assert await warnings(api, path) == NOTHING_AHEAD
    await api.post("/v1/halt")
    assert await warnings(api, path) == NOTHING_AHEAD | {"halted"}
    await api.post("/v1/unhalt")
    await api.post(f"/v1/phone-numbers/{NUMBER}/pause")
    found = await warning(api, path, "number_paused")
    assert found["detail"] == "the number is paused (operator)"
    assert found["cure"] == f"POST /v1/phone-numbers/{NUMBER}/resume"
    await run(engine, "UPDATE numbers SET paused_until = now() + interval '1 hour'")
    assert " until " in (await warning(api, path, "number_paused"))["detail"]
    await run(engine, "UPDATE numbers SET paused_until = now() - interval '1 second'")
    assert await warnings(api, path) == NOTHING_AHEAD
    await hear(engine)
    assert await warnings(api, path) == set()
    assert (await api.post(f"{path}/start")).status_code == 200


async def test_webhooks_of_another_number_say_nothing(api: Api, engine: AsyncEngine) -> None:
    path = await audience(api)
    await hear(engine)
    await run(engine, "UPDATE webhook_heartbeats SET phone_number_id = '42'")
    found = await checked(api, path)
    assert found["webhooks_seen_at"] is None
    assert reasons(found["warnings"]) == ["no_webhooks"]


async def test_an_expiry_too_soon_for_all(api: Api) -> None:
    path = await audience(api, 2000, expires_at=ahead(seconds=20))
    found = await checked(api, path)
    assert found["ready"]
    assert found["seconds"] == 32
    assert "expires_before_end" in reasons(found["warnings"])
    await api.patch(path, json={"expires_at": ahead(seconds=60)})
    assert await warnings(api, path) == NOTHING_AHEAD


async def test_rows_that_were_refused_before_the_audience_closes(api: Api) -> None:
    path = await audience(api)
    bad = "phone,name\nnothing,Ana\nnobody,Bea\n+12025550177,Eva\n"
    assert (await api.upload(path, bad)).json()["invalid"] == 2
    assert (await warning(api, path, "rows_refused"))["detail"].endswith(": 2")
    assert "audience_closes" in await warnings(api, path)
    mended = await audience(api)
    await api.upload(mended, bad)
    await api.upload(mended, people(2, start=60))
    assert await warnings(api, mended) == NOTHING_AHEAD
    kept = await audience(api, audience="open")
    await api.upload(kept, bad)
    assert await warnings(api, kept) == NOTHING_AHEAD | {"rows_refused"}
    await api.post(f"{path}/start")
    assert await warnings(api, path) == NOTHING_AHEAD | {"rows_refused"}


async def test_an_upload_that_failed_until_another_came(api: Api) -> None:
    path = await audience(api)
    assert (await api.upload(path, "name\nAna\n")).status_code == 422
    assert await warnings(api, path) == NOTHING_AHEAD | {"upload_failed", "audience_closes"}
    await api.upload(path, people(1, start=50))
    assert await warnings(api, path) == NOTHING_AHEAD


@pytest.mark.parametrize("strangers", [0, 1000])
async def test_people_who_opted_out(api: Api, engine: AsyncEngine, strangers: int) -> None:
    """However many others have, strangers and people of another campaign."""
    path, other = await audience(api, 50), await audience(api, 10)
    await api.upload(other, "phone,name\n+12025550155,Eva\n")
    await run(
        engine,
        "INSERT INTO opt_outs (person, source)"
        " SELECT DISTINCT person, 'test' FROM recipients WHERE phone < '4915112000003'",
    )
    await run(
        engine,
        "INSERT INTO opt_outs (person, source)"
        " SELECT 'x' || n, 'test' FROM generate_series(1, :count) AS n",
        count=strangers,
    )
    found = await checked(api, path)
    assert (found["people"], found["opted_out"]) == (50, 3)
    assert (await warning(api, path, "opted_out"))["detail"].endswith(": 3")
    assert (await checked(api, other))["opted_out"] == 4


async def test_people_whom_the_installation_may_not_send_to(api: Api, staging_api: Api) -> None:
    path = await audience(api)
    await api.upload(path, "phone,name\n+12025550101,A\n+12025550102,B\n+12025550103,C\n")
    found = await checked(staging_api, path)
    assert (found["people"], found["not_allowed"], found["ready"]) == (5, 2, True)
    assert (await warning(staging_api, path, "not_allowed"))["detail"].endswith(": 2")
    assert (await checked(api, path))["not_allowed"] == 0


# How long


async def test_others_on_the_number_take_their_share(api: Api) -> None:
    path = await audience(api, 640, weight=1)
    alone = (await checked(api, path))["seconds"]
    small = await audience(api, 64, weight=1)
    await audience(api, 5000)  # a draft sends nothing
    elsewhere = await api.draft()
    await api.register("100000000000002")
    assert (await checked(api, path))["seconds"] == alone == 11
    await api.post(f"{small}/start")
    assert (await checked(api, path))["seconds"] == 12, "all that the small one has"
    large = await audience(api, 2000, weight=2)
    await api.post(f"{large}/start")
    assert (await checked(api, path))["seconds"] == 32, "twice as many as its own, then"
    await api.post(f"{large}/pause")
    assert (await checked(api, path))["seconds"] == 12
    assert (await checked(api, elsewhere))["seconds"] == 0


async def test_a_running_campaign_is_measured_by_what_it_has_left(
    api: Api, engine: AsyncEngine
) -> None:
    path = await audience(api, 640)
    await api.post(f"{path}/start")
    await run(
        engine,
        "INSERT INTO counter_deltas (campaign_id, minute, status, error_code, entered, departed)"
        " SELECT id, now(), status::message_status, 0, entered, departed FROM campaigns,"
        " (VALUES ('pending', 0, 576), ('accepted', 576, 0)) AS moved (status, entered, departed)",
    )
    found = await checked(api, path)
    assert (found["people"], found["seconds"]) == (640, 2)
