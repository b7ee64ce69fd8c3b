"""Why a campaign is not sending, and how fast it is: told by workers, seen through the API."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from pipeline import Meta, sending
from planting import change_campaign, plant_campaign, plant_messages, plant_number
from redis.asyncio import Redis
from running import Processes
from sender_api import ADMIN_KEY, NUMBER, Api, people
from simulated import simulator
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs
from waiting import until

from services.sender.pipeline.bucket import Bucket
from services.sender.pipeline.outage import Waits
from services.sender.pipeline.pulse import Held, Pulse
from shared.settings import SettingsError

pytest_plugins = ["sender_server", "redis_gate"]

# 80 at once, each a second, on the ten connections of an API.
WAITED_IN_TURN_S = 7
HEADERS = {"authorization": f"Bearer {ADMIN_KEY}"}
PATH = f"/v1/phone-numbers/{NUMBER}"
StartSender = Callable[..., Awaitable[Api]]


@pytest.fixture
async def start_sender(
    processes: Processes, database_url: str, redis_url: str
) -> AsyncGenerator[StartSender]:
    """A function that starts a whole sender as a process and gives a client of its API."""
    async with AsyncExitStack() as stack:

        async def start(graph_url: str, **more: str) -> Api:
            env = {
                "DATABASE_URL": database_url,
                "REDIS_URL": redis_url,
                "HEADRACE_ACCESS_TOKEN": "TEST-TOKEN-01",
                "HEADRACE_ADMIN_KEY": ADMIN_KEY,
                "HEADRACE_GRAPH_URL": graph_url,
                **more,
            }
            sender = await processes.start("sender", "services.sender.app:create_app", env)
            api = Api(base_url=sender.url, headers=HEADERS, timeout=30)
            return await stack.enter_async_context(api)

        yield start


async def shown(api: Api, path: str) -> dict[str, Any]:
    return dict((await api.get(path)).json())


async def held(api: Api, path: str) -> dict[str, dict[str, Any]]:
    return {one["reason"]: one for one in (await shown(api, path))["holding"]}


async def running(engine: AsyncEngine, api: Api, count: int = 10, **values: Any) -> str:
    """The path of a campaign that has rows to send."""
    campaign = await plant_campaign(engine, **values)
    await plant_messages(engine, campaign, count)
    (only,) = (await api.get("/v1/campaigns")).json()["data"]
    return f"/v1/campaigns/{only['id']}"


def when(text: str) -> datetime:
    return datetime.fromisoformat(text)


def now() -> datetime:
    return datetime.now(UTC)


async def test_a_campaign_that_sends_says_how_fast_and_until_when(start_sender: StartSender):
    async with simulator() as meta:
        await meta.play()
        api = await start_sender(meta.url)
        path = await api.started(people(950))

        async def accepted() -> int:
            seen = await shown(api, path)
            assert seen["holding"] == []
            return int(seen["counts"]["total"] - seen["counts"]["pending"])

        await until(accepted, 40, is_right=lambda count: count > 700)
        looked, seen = now(), await shown(api, path)
        last = int(looked.timestamp()) - 1
        times = [line["at"] for line in await meta.ledger()]
        pace = sum(last - 10 <= time < last for time in times) / 10
        assert seen["rate"] == pytest.approx(pace, rel=0.1)
        ends = looked + timedelta(seconds=seen["counts"]["pending"] / pace)
        assert abs(when(seen["eta"]) - ends) < timedelta(seconds=1)

        await until(meta.ledger, 30, is_right=lambda ledger: len(ledger) == 950)
        number = await until(
            lambda: shown(api, PATH), is_right=lambda one: one["sends_last_minute"] == 950
        )
        assert (number["effective_rate"], number["campaign_rate"]) == (80, 63.37)
        assert (number["state"], number["paused_reason"]) == ("active", None)
        over = await until(
            lambda: shown(api, path), 20, is_right=lambda one: one["state"] == "completed"
        )
        assert (over["rate"], over["eta"], over["holding"]) == (0, None, [])


async def test_without_a_worker_it_says_so(api: Api, engine: AsyncEngine, redis: Redis):
    path = await running(engine, api)
    assert set(await held(api, path)) == {"no_worker"}
    assert (await shown(api, path))["eta"] is None
    await Pulse(redis).beat({}, {})
    assert await held(api, path) == {}
    await until(lambda: held(api, path), is_right=lambda one: set(one) == {"no_worker"})


async def test_a_worker_lives_from_its_first_moment(start_sender: StartSender):
    async with simulator() as meta:
        api = await start_sender(meta.url)
        assert set(await held(api, await api.draft())) == {"not_started", "no_recipients"}


async def test_a_process_without_the_role_is_no_worker(
    start_sender: StartSender, engine: AsyncEngine
):
    api = await start_sender("http://127.0.0.1:1", HEADRACE_ROLES="api,orchestrator")
    assert set(await held(api, await running(engine, api))) == {"no_worker"}


async def test_meta_out_of_reach(
    start_sender: StartSender, engine: AsyncEngine, free_port: Callable[[], int]
):
    api = await start_sender(f"http://127.0.0.1:{free_port()}")
    path = await running(engine, api, 500)
    found = await until(lambda: held(api, path))
    assert set(found) == {"meta_unreachable"}
    assert "HEADRACE_GRAPH_URL" in found["meta_unreachable"]["cure"]
    number = await shown(api, PATH)
    assert (number["state"], number["paused_reason"]) == ("active", "meta_unreachable")
    assert number["sends_last_minute"] <= 1  # a probe on its way
    assert (await shown(api, path))["eta"] is None


async def test_an_outage_is_told_no_longer_than_somebody_tries(
    api: Api, engine: AsyncEngine, redis: Redis
):
    """Its campaign is cancelled: nothing is left that could find out that Meta is well again."""
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 100)
    waits = Waits(out=(0.1, 0.2))
    meta = Meta(lambda _: httpx.Response(502, content=b"<html>"), waits=waits)

    async with sending(engine, redis, meta) as sender:

        async def told() -> str | None:
            await sender.crew.beat()
            reason = (await shown(api, PATH))["paused_reason"]
            return None if reason is None else str(reason)

        await until(told, is_right=lambda reason: reason == "meta_failing")
        await change_campaign(engine, campaign, state="cancelled")
        await until(told, is_right=lambda reason: reason is None)
        draft = await api.draft()
        assert "meta_failing" not in await held(api, draft)


async def test_only_what_every_worker_holds_is_held(api: Api, engine: AsyncEngine, redis: Redis):
    path = await running(engine, api)
    clock = asyncio.get_running_loop().time()
    one, other = Pulse(redis), Pulse(redis)
    await one.beat({}, {NUMBER: Held("meta_unreachable", until=clock + 60)})
    await other.beat({}, {})
    assert await held(api, path) == {}
    await other.beat({}, {NUMBER: Held("meta_unreachable", until=clock + 30)})
    ends_at = when((await held(api, path))["meta_unreachable"]["ends_at"])
    assert timedelta(seconds=20) < ends_at - now() < timedelta(seconds=31)


async def test_every_process_adds_what_left(api: Api, engine: AsyncEngine, redis: Redis):
    campaign = await plant_campaign(engine)
    await plant_number(engine, "100000000000002")
    await Pulse(redis).beat({NUMBER: {campaign: 3, campaign + 1: 1}}, {})
    await Pulse(redis).beat({NUMBER: {campaign: 2}, "100000000000002": {campaign: 7}}, {})

    async def sends() -> list[int]:
        numbers = (await api.get("/v1/phone-numbers")).json()["data"]
        return [one["sends_last_minute"] for one in numbers]

    assert await until(sends, is_right=any) == [6, 7]
    assert all([0 < await redis.ttl(key) < 150 for key in await redis.keys()])


async def test_the_pause_of_the_bucket_is_told_and_nothing_booked(
    api: Api, engine: AsyncEngine, redis: Redis
):
    path = await running(engine, api)
    await Pulse(redis).beat({}, {})
    bucket, key = Bucket(redis, NUMBER), f"headrace:bucket:{NUMBER}"
    await bucket.throttle((await bucket.book(1, 80, 0.2)).redis_first)
    kept = await redis.hgetall(key)
    found, number = await held(api, path), await shown(api, PATH)
    assert await redis.hgetall(key) == kept
    assert set(found) == {"throttled"}
    assert timedelta(0) < when(found["throttled"]["ends_at"]) - now() < timedelta(seconds=1)
    assert (number["paused_reason"], number["effective_rate"]) == (
        "throttled",
        pytest.approx(68, 1),
    )
    assert when(number["paused_until"]) == when(found["throttled"]["ends_at"])

    await bucket.pause(30)
    number = await shown(api, PATH)
    assert (number["state"], number["paused_reason"]) == ("active", "meta_failing")
    await api.post(f"{PATH}/pause")
    number = await shown(api, PATH)
    assert (number["paused_reason"], number["paused_until"]) == ("operator", None)


async def test_a_missing_token_is_named_and_logged_once(
    api: Api, engine: AsyncEngine, redis: Redis, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HEADRACE_ACCESS_TOKEN_CLINIC", "TEST-TOKEN-02")
    problem: list[str] = ["HEADRACE_ACCESS_TOKEN_CLINIC: is missing"]

    def token_for(name: str | None) -> str:
        assert name == "clinic"
        if problem:
            raise SettingsError(problem[0])
        return "the-token"

    await plant_number(engine, token_name="clinic")
    path = await running(engine, api)
    with capture_logs() as logs:
        async with sending(engine, redis, Meta(), token_for=token_for) as sender:
            await until(lambda: logs)
            for _ in range(3):
                await sender.crew.refresh()
                await sender.crew.beat()
            found = await held(api, path)
            assert set(found) == {"token_missing"}
            assert found["token_missing"]["detail"] == problem[0]
            problem.clear()
            await until(lambda: held(api, path), is_right=lambda one: "token_missing" not in one)
    told = [line["event"] for line in logs if line["event"].startswith("token")]
    assert told == ["token_missing", "token_found"]


async def test_the_token_that_this_process_lacks_is_named(
    api: Api, engine: AsyncEngine, redis: Redis
):
    await plant_number(engine, token_name="clinic")
    path = await running(engine, api)
    await Pulse(redis).beat({}, {})
    found = await held(api, path)
    assert set(found) == {"token_missing"}
    assert found["token_missing"]["detail"].startswith("HEADRACE_ACCESS_TOKEN_CLINIC: is missing")


async def test_redis_away_or_frozen_is_said_in_time(
    api: Api, gated_api: Api, gate, engine: AsyncEngine, redis: Redis
):
    path = await running(engine, api)
    await Pulse(redis).beat({}, {})
    assert await held(gated_api, path) == {}
    gate.hang()
    await check_away(gated_api, path)
    await Pulse(gate.redis).beat({}, {})  # it says nothing, and does not hang
    gate.resume()
    await Pulse(redis).beat({}, {})
    await until(lambda: held(gated_api, path), is_right=lambda one: not one)
    await gate.shut()
    await check_away(gated_api, path)


async def test_watching_while_redis_is_frozen_keeps_nobody_from_the_halt(
    api: Api, gated_api: Api, gate, engine: AsyncEngine
):
    """Who waits for Redis holds one of the few connections to the database."""
    path = await running(engine, api)
    gate.hang()
    gated_api.timeout = 30
    begun = time.monotonic()
    watching = [asyncio.create_task(gated_api.get(path)) for _ in range(80)]
    await until(lambda: any(task.done() for task in watching))
    assert (await gated_api.post("/v1/halt")).status_code == 200
    answers = await asyncio.gather(*watching)
    assert time.monotonic() - begun < WAITED_IN_TURN_S
    assert {answer.status_code for answer in answers} == {200}
    gate.resume()


async def check_away(api: Api, path: str) -> None:
    seen = await shown(api, path)
    assert [one["reason"] for one in seen["holding"]] == ["redis_away"]
    assert (seen["rate"], seen["eta"]) == (None, None)
    number = await shown(api, PATH)
    assert (number["effective_rate"], number["sends_last_minute"]) == (None, None)
    assert number["campaign_rate"] == 63.37
