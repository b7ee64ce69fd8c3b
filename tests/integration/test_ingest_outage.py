"""Outages: what was answered with 200 is there afterwards, and nothing else was promised."""

import asyncio

import httpx
import pytest
from ingest_rows import column, status, webhook
from waiting import until

from services.ingest.group import unpack
from services.ingest.receive import PATH
from shared.db.engine import create_engine
from shared.db.migrations import upgrade
from shared.whatsapp.signature import sign

APP = "services.ingest.app:create_app"
COUNT = 600


@pytest.fixture
async def database(durable_servers):
    url = durable_servers.database_url()
    await asyncio.to_thread(upgrade, url)
    return url


@pytest.fixture
def environment(database):
    return {
        "DATABASE_URL": database,
        "HEADRACE_APP_SECRETS": "secret",
        "HEADRACE_VERIFY_TOKEN": "token",
    }


async def post(client, number) -> int | None:
    """The answer's status, or None when there was none."""
    body = webhook([status(None, "sent", wamid=f"w{number}")])
    try:
        answer = await client.post(
            PATH, content=body, headers={"X-Hub-Signature-256": sign("secret", body)}
        )
    except httpx.TransportError:
        return None
    if answer.status_code == 503:
        assert answer.headers["retry-after"]
    return answer.status_code


async def post_many(client, count, done: dict[int, int | None]) -> None:
    async def one(start):
        for number in range(start, count, 8):
            done[number] = await post(client, number)

    await asyncio.gather(*(one(start) for start in range(8)))


async def stored(database) -> list[str]:
    engine = create_engine(database, pool_size=1)
    packed = await column(engine, "SELECT bodies FROM webhook_groups")
    await engine.dispose()
    bodies = [one.body.decode() for group in packed for one in unpack(group)]
    return [body.split('"id": "')[1].split('"')[0] for body in bodies]


async def test_database_away_is_503_and_back_is_200(processes, environment, durable_servers):
    ingest = await processes.start("ingest", APP, environment)
    async with httpx.AsyncClient(base_url=ingest.url, trust_env=False, timeout=30) as client:
        assert await post(client, 1) == 200
        await asyncio.to_thread(durable_servers.kill_postgres)
        assert await post(client, 2) == 503
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/healthz")).status_code == 200
        durable_servers.start_postgres()
        assert await until(lambda: post(client, 3), 20, is_right=lambda code: code == 200)
        assert (await client.get("/readyz")).status_code == 200
    found = await stored(environment["DATABASE_URL"])
    assert {"w1", "w3"} <= set(found)


async def test_a_database_that_comes_after_ingest(processes, environment, durable_servers):
    await asyncio.to_thread(durable_servers.stop_postgres)
    ingest = await processes.start("ingest", APP, environment, ready=False)
    async with httpx.AsyncClient(base_url=ingest.url, trust_env=False, timeout=30) as client:
        await until(lambda: post(client, 4), 20, is_right=lambda code: code == 503)
        durable_servers.start_postgres()
        await until(lambda: post(client, 4), 20, is_right=lambda code: code == 200)


@pytest.mark.parametrize("victim", ["ingest", "postgres"])
async def test_a_kill_loses_nothing_that_was_confirmed(
    processes, environment, durable_servers, victim
):
    ingest = await processes.start("ingest", APP, environment)
    before = len(await stored(environment["DATABASE_URL"]))
    answers: dict[int, int | None] = {}
    async with httpx.AsyncClient(base_url=ingest.url, trust_env=False, timeout=30) as client:
        posting = asyncio.create_task(post_many(client, COUNT, answers))
        await until(lambda: len(answers) > 100)
        kill = ingest.kill if victim == "ingest" else durable_servers.kill_postgres
        await asyncio.to_thread(kill)
        await posting
    if victim == "postgres":
        durable_servers.start_postgres()
    confirmed = {f"w{number}" for number, code in answers.items() if code == 200}
    found = await stored(environment["DATABASE_URL"])
    assert len(answers) == COUNT
    assert 50 < len(confirmed) < COUNT
    assert confirmed <= set(found)
    assert len(found) - before >= len(confirmed)


async def test_a_stop_finishes_what_is_under_way(processes, environment):
    ingest = await processes.start("ingest", APP, environment)
    answers: dict[int, int | None] = {}
    async with httpx.AsyncClient(base_url=ingest.url, trust_env=False, timeout=30) as client:
        posting = asyncio.create_task(post_many(client, COUNT, answers))
        await until(lambda: len(answers) > 100)
        await asyncio.to_thread(ingest.stop)
        await posting
    confirmed = {f"w{number}" for number, code in answers.items() if code == 200}
    assert set(answers.values()) <= {200, 503, None}
    assert confirmed <= set(await stored(environment["DATABASE_URL"]))
    assert "ingest_stopped" in ingest.last_lines(50)
