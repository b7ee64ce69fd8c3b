"""Campaigns that start later, expire, and change while they run."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest
from sender_api import Api, campaign, rows
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from waiting import until

from services.sender.orchestration.scheduler import start_scheduled

pytest_plugins = ["sender_server"]

PEOPLE = "phone,name\n+12025550123,Ana\n+12025550124,Bea\n"
# No time in UTC: its year would have five digits.
FURTHEST = "9999-12-31T23:59:59-12:00"
NOT_AHEAD = ["2020-01-01T00:00:00Z", FURTHEST]
NO_TIME = ["2999-01-01T00:00:00", "tomorrow", "2999-13-01T00:00:00Z"]


def ahead(**distance: float) -> str:
    """A time ahead, as a caller east of Greenwich writes it."""
    east = timezone(timedelta(hours=5, minutes=30))
    return (datetime.now(UTC) + timedelta(**distance)).astimezone(east).isoformat()


def same(first: str, second: str) -> bool:
    return datetime.fromisoformat(first) == datetime.fromisoformat(second)


async def scheduled(api: Api, at: str, **changes: object) -> str:
    path = await api.draft(**changes)
    assert (await api.upload(path, PEOPLE)).status_code == 201
    assert (await api.post(f"{path}/start", json={"at": at})).status_code == 200
    return path


async def pass_by(engine: AsyncEngine, **values: str) -> None:
    """Move the times of all campaigns by intervals, as if time had passed."""
    change = ", ".join(
        f"{name} = now() - CAST('{value}' AS interval)" for name, value in values.items()
    )
    async with engine.begin() as connection:
        await connection.execute(text(f"UPDATE campaigns SET {change}"))


async def last_event(api: Api, path: str) -> dict[str, object]:
    found: list[dict[str, object]] = (await api.get(f"{path}/events")).json()["data"]
    return found[-1]


async def held(api: Api, path: str) -> dict[str, dict[str, str]]:
    """What holds a campaign, besides the worker that no test of this file has."""
    found = {one["reason"]: one for one in (await api.get(path)).json()["holding"]}
    del found["no_worker"]
    return found


async def test_a_start_at_a_time_leaves_the_audience_open_until_then(api: Api, engine):
    at = ahead(hours=2)
    path = await scheduled(api, at)
    shown = (await api.get(path)).json()
    assert (shown["state"], shown["started_at"]) == ("scheduled", None)
    assert same(shown["start_at"], at)
    event = await last_event(api, path)
    assert (event["kind"], event["actor"]) == ("scheduled", "key:admin")
    assert same(event["details"]["at"], at)
    assert (await api.upload(path, "phone,name\n+12025550125,Eva\n")).json()["accepted"] == 1

    await pass_by(engine, start_at="1 second")
    assert await start_scheduled(engine) == 1

    started = (await api.get(path)).json()
    assert (started["state"], started["audience"]) == ("running", "closed")
    assert (await api.upload(path, PEOPLE)).status_code == 409


async def test_what_is_to_be_kept_open_is_open_after_the_start(api: Api, engine):
    path = await api.draft()
    await api.upload(path, PEOPLE)
    body = {"at": ahead(hours=1), "keep_open": True}
    answer = await api.post(f"{path}/start", json=body)
    assert answer.json()["audience"] == "open"
    await pass_by(engine, start_at="1 second")
    assert await start_scheduled(engine) == 1
    started = (await api.get(path)).json()
    assert (started["state"], started["audience"]) == ("running", "open")


@pytest.mark.parametrize("at", [*NOT_AHEAD, *NO_TIME])
async def test_a_start_needs_a_time_ahead_with_its_zone(api: Api, at):
    path = await api.draft()
    await api.upload(path, PEOPLE)
    answer = await api.post(f"{path}/start", json={"at": at})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == "body.at"
    assert (await api.get(path)).json()["state"] == "draft"


async def test_a_scheduled_start_gets_another_time_but_no_second_start(api: Api):
    path = await scheduled(api, ahead(hours=1))
    refused = await api.post(f"{path}/start")
    assert refused.status_code == 409
    assert "is scheduled" in refused.json()["detail"]
    later = ahead(hours=3)
    assert same((await api.post(f"{path}/start", json={"at": later})).json()["start_at"], later)


async def test_what_runs_cannot_be_scheduled(api: Api):
    path = await api.started()
    for move in ("", "/pause"):
        if move:
            await api.post(f"{path}{move}")
        answer = await api.post(f"{path}/start", json={"at": ahead(hours=1)})
        assert answer.status_code == 409
        assert "cannot be scheduled" in answer.json()["detail"]


async def test_a_repeated_start_gets_its_first_answer_also_after_its_time(api: Api):
    path = await api.draft()
    await api.upload(path, PEOPLE)
    start = datetime.now(UTC) + timedelta(seconds=1)
    at = start.isoformat()
    headers = {"Idempotency-Key": "k1"}
    first = await api.post(f"{path}/start", json={"at": at}, headers=headers)
    assert first.status_code == 200, first.text
    await until(lambda: datetime.now(UTC) > start)
    late = await api.post(f"{path}/start", json={"at": at})
    assert late.status_code == 422, "its time is over for whoever asks anew"
    again = await api.post(f"{path}/start", json={"at": at}, headers=headers)
    assert (again.status_code, again.json()) == (200, first.json())
    assert again.headers["idempotency-replayed"] == "true"


async def test_a_paused_schedule_waits_for_its_time_again(api: Api, engine):
    at = ahead(hours=1)
    path = await scheduled(api, at)
    assert (await api.post(f"{path}/pause")).json()["state"] == "paused"
    resumed = (await api.post(f"{path}/resume")).json()
    assert resumed["state"] == "scheduled"
    assert same(resumed["start_at"], at)
    assert await start_scheduled(engine) == 0


async def test_a_missed_schedule_starts_when_it_is_resumed(api: Api, engine):
    path = await scheduled(api, ahead(hours=1))
    await pass_by(engine, start_at="2 hours")
    assert await start_scheduled(engine) == 1
    missed = (await api.get(path)).json()
    assert (missed["state"], missed["pause_reason"]) == ("paused", "schedule_missed")
    assert (await held(api, path))["campaign_paused"]["detail"] == "schedule_missed"
    assert (await api.post(f"{path}/resume")).status_code == 200
    assert await start_scheduled(engine) == 1
    running = (await api.get(path)).json()
    assert (running["state"], running["audience"]) == ("running", "closed")


async def test_a_missed_schedule_may_get_another_time(api: Api, engine):
    path = await scheduled(api, ahead(hours=1))
    await pass_by(engine, start_at="2 hours")
    await start_scheduled(engine)
    again = (await api.post(f"{path}/start", json={"at": ahead(hours=5)})).json()
    assert (again["state"], again["pause_reason"]) == ("scheduled", None)


async def test_a_scheduled_campaign_can_be_cancelled(api: Api, engine):
    path = await scheduled(api, ahead(hours=1))
    assert (await api.post(f"{path}/cancel")).json()["state"] == "cancelled"
    await pass_by(engine, start_at="1 second")
    assert await start_scheduled(engine) == 0


async def test_what_would_keep_it_from_starting_is_said_before(api: Api):
    path = await api.draft()
    at = ahead(hours=1)
    assert (await api.post(f"{path}/start", json={"at": at})).status_code == 200
    found = await held(api, path)
    assert same(found["scheduled"]["ends_at"], at)
    assert "no recipients" in found["not_ready"]["detail"]
    await api.upload(path, PEOPLE)
    assert set(await held(api, path)) == {"scheduled"}


@pytest.mark.parametrize("at", [*NOT_AHEAD, *NO_TIME])
async def test_an_expiry_needs_a_time_ahead_with_its_zone(api: Api, engine, at):
    await api.register()
    answer = await api.post("/v1/campaigns", json=campaign(expires_at=at))
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == "body.expires_at"
    assert await rows(engine, "SELECT count(*) FROM campaigns") == [(0,)]


async def test_nothing_starts_or_comes_after_the_expiry(api: Api, engine):
    at = ahead(hours=1)
    path = await api.draft(expires_at=at)
    assert same((await api.get(path)).json()["expires_at"], at)
    await api.upload(path, PEOPLE)
    await pass_by(engine, expires_at="1 second")
    for refused in (await api.post(f"{path}/start"), await api.upload(path, PEOPLE)):
        assert refused.status_code == 409
        assert "expired" in refused.json()["detail"]
    assert "PATCH" in (await held(api, path))["expired"]["cure"]
    assert (await api.patch(path, json={"expires_at": None})).status_code == 200
    assert (await api.post(f"{path}/start")).status_code == 200
    assert await held(api, path) == {}


async def test_it_cannot_expire_before_its_start(api: Api):
    path = await api.draft(expires_at=ahead(hours=2))
    await api.upload(path, PEOPLE)
    assert (await api.post(f"{path}/start", json={"at": ahead(hours=3)})).status_code == 409
    assert (await api.post(f"{path}/start", json={"at": ahead(hours=1)})).status_code == 200
    refused = await api.patch(path, json={"expires_at": ahead(minutes=30)})
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        "the campaign would expire before its start",
    )


async def test_a_paused_start_does_not_resume_for_after_its_expiry(api: Api, engine):
    path = await scheduled(api, ahead(hours=3), expires_at=ahead(hours=4))
    await api.post(f"{path}/pause")
    refused = await api.patch(path, json={"expires_at": ahead(hours=1)})
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        "the campaign would expire before its start",
    )
    await pass_by(engine, start_at="1 hour", expires_at="1 minute")
    refused = await api.post(f"{path}/resume")
    assert refused.status_code == 409
    assert "later expires_at" in refused.json()["detail"]
    assert (await api.patch(path, json={"expires_at": ahead(hours=1)})).status_code == 200
    assert (await api.post(f"{path}/resume")).json()["state"] == "scheduled"


async def test_a_change_and_a_start_at_once_do_not_expire_it_before_its_start(api: Api):
    path = await scheduled(api, ahead(hours=1))
    for _ in range(10):
        start, change = {"at": ahead(hours=3)}, {"expires_at": ahead(hours=2)}
        await asyncio.gather(api.patch(path, json=change), api.post(f"{path}/start", json=start))
        shown = (await api.get(path)).json()
        expires_at = shown["expires_at"]
        assert expires_at is None or shown["start_at"] < expires_at
        again = {"at": ahead(hours=1)}
        assert (await api.post(f"{path}/start", json=again)).status_code == 200
        assert (await api.patch(path, json={"expires_at": None})).status_code == 200


async def test_a_running_campaign_changes_and_says_so(api: Api):
    path = await api.started(labels={"team": "a"}, weight=2)
    at = ahead(hours=1)
    changed = (await api.patch(path, json={"weight": 7, "expires_at": at})).json()
    assert (changed["state"], changed["weight"], changed["labels"]) == ("running", 7, {"team": "a"})
    assert same(changed["expires_at"], at)
    event = await last_event(api, path)
    assert (event["kind"], event["actor"]) == ("changed", "key:admin")
    assert event["details"].keys() == {"weight", "expires_at"}
    changed = (await api.patch(path, json={"labels": {}})).json()
    assert (changed["weight"], changed["labels"]) == (7, {})
    assert same(changed["expires_at"], at)
    assert (await api.patch(path, json={"expires_at": None})).json()["expires_at"] is None


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"surprise": 1},
        {"name": "other"},
        {"weight": 2, "state": "running"},
        {"weight": 0},
        {"weight": None},
        {"labels": None},
        {"labels": {"a": 1}},
        {"labels": {"a": "\u0000"}},
        *({"expires_at": at} for at in (*NOT_AHEAD, *NO_TIME)),
    ],
    ids=str,
)
async def test_a_wrong_change_changes_nothing(api: Api, wrong):
    path = await api.started()
    before = (await api.get(path)).json()
    answer = await api.patch(path, json=wrong)
    assert answer.status_code == 422, answer.text
    assert (await api.get(path)).json() == before


@pytest.mark.parametrize("state", ["completed", "cancelled"])
async def test_what_has_ended_does_not_change(api: Api, engine, state):
    path = await api.started()
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE campaigns SET state = :state"), {"state": state})
    answer = await api.patch(path, json={"weight": 3})
    assert answer.status_code == 409
    assert f"is {state}" in answer.json()["detail"]


async def test_a_schedule_and_a_change_wake_the_workers(api: Api, engine):
    heard: list[str] = []
    path = await scheduled(api, ahead(hours=1))
    await pass_by(engine, start_at="1 second")
    async with engine.connect() as connection:
        raw = (await connection.get_raw_connection()).driver_connection
        await raw.add_listener("headrace", lambda *event: heard.append(event[2]))
        assert await start_scheduled(engine) == 1
        assert (await api.patch(path, json={"weight": 3})).status_code == 200
        await raw.execute("SELECT 1")
        await raw.reset()
    assert heard == ["headrace"] * 2
