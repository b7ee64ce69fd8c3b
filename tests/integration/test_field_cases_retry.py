"""What people met in the field with repeats and doubles, each under its id."""

import asyncio
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx
import pytest
from ingest_rows import put, status, webhook
from pipeline import BOUND_S, Meta, accept, become, refuse, sending
from planting import (
    NUMBER,
    TEMPLATE,
    change_campaign,
    check_counters,
    history,
    one_row,
    plant_campaign,
    plant_messages,
    plant_number,
    rows,
    run,
    statuses,
)
from redis.asyncio import Redis
from sender_api import Api
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from waiting import until

from services.ingest.inbox import apply_once
from services.sender.orchestration.completer import complete
from services.sender.pipeline.outage import Waits
from services.sender.pipeline.reply import Reason
from shared.db.installation import Installation
from shared.domain.tokens import Token

pytest_plugins = ["sender_server"]
GREETING = {
    **TEMPLATE,
    "components": [{"type": "body", "parameters": [{"type": "text", "text": "{{name}}"}]}],
}
UNDELIVERABLE = 131026
NOT_SENT = [
    httpx.ConnectError(Reason.DNS),
    httpx.ConnectError(Reason.REFUSED),
    httpx.ConnectError(Reason.TLS),
    httpx.ConnectTimeout(Reason.CONNECT_TIMEOUT),
    httpx.PoolTimeout(Reason.POOL_TIMEOUT),
]


@pytest.mark.parametrize("error", NOT_SENT, ids=str)
async def test_rd_02_what_did_not_leave_is_sent_again_and_spends_nothing(
    engine: AsyncEngine, redis: Redis, error: httpx.TransportError
) -> None:
    """That sockets which fail so end so is for the tests of the transport."""
    await plant_number(engine, rate=200, headroom=0)
    # A single attempt: whatever spent one would have failed its recipient.
    campaign = await plant_campaign(engine, max_attempts=1)
    await plant_messages(engine, campaign, 20)
    recorded: Counter[str] = Counter()

    def answer(body: dict[str, Any]) -> httpx.Response:
        if len(meta.requests) <= 3:
            raise error
        recorded[body["to"]] += 1
        return accept(body)

    meta = Meta(answer, waits=Waits(unreachable=(0.1, 0.1)))
    async with sending(engine, redis, meta):
        await become(engine, campaign, accepted=20)
    assert len(meta.requests) > 20
    assert len(recorded) == 20
    assert set(recorded.values()) == {1}
    assert {row.spent for row in await rows(engine, campaign)} == {1}


def token_of(body: dict[str, Any]) -> Token:
    token = Token.parse(body["biz_opaque_callback_data"])
    assert token
    return token


def none_claimed(now: Counter[str]) -> bool:
    return "claimed" not in now


async def test_rd_06_every_resume_goes_on_where_the_rows_are(
    engine: AsyncEngine, redis: Redis
) -> None:
    await plant_number(engine, rate=400, headroom=0)
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 120)
    broken = asyncio.Event()

    def answer(body: dict[str, Any]) -> httpx.Response:
        if len(meta.requests) % 25 in {0, 1, 2}:
            broken.set()
            raise httpx.ReadError(Reason.RESET)
        return accept(body)

    meta = Meta(answer)
    look = partial(statuses, engine, campaign)
    async with sending(engine, redis, meta):
        for _ in range(3):
            await asyncio.wait_for(broken.wait(), BOUND_S)
            await change_campaign(engine, campaign, state="paused", pause_reason="operator")
            await until(look, BOUND_S, is_right=none_claimed)
            broken.clear()
            await change_campaign(engine, campaign, state="running", pause_reason=None)
        await until(look, BOUND_S, is_right=lambda now: now.keys() == {"accepted", "unknown"})
    assert len(meta.times_sent) == 120
    assert set(meta.times_sent.values()) == {1}
    await check_counters(engine, campaign)


@pytest.mark.parametrize("parameters", ["[1,", ["a"], 7, None], ids=json.dumps)
async def test_rd_08_a_row_that_breaks_breaks_nothing_else(
    engine: AsyncEngine, redis: Redis, parameters: object
) -> None:
    await plant_number(engine, rate=400, headroom=0)
    campaign = await plant_campaign(engine, template=GREETING)
    ids = await plant_messages(engine, campaign, 50, parameters={"name": "Ana"})
    seventh, ninth = ids[6], ids[8]
    values = {"id": seventh, "parameters": json.dumps(parameters)}
    statement = "UPDATE recipients SET parameters = CAST(:parameters AS jsonb) WHERE id = :id"
    await run(engine, statement, **values)

    def answer(body: dict[str, Any]) -> httpx.Response:
        broken = token_of(body).message_id == ninth
        return refuse(UNDELIVERABLE, "its text \0 ends no batch") if broken else accept(body)

    meta = Meta(answer)
    async with sending(engine, redis, meta):
        await become(engine, campaign, accepted=48, failed=2)
    assert await complete(engine) == 1
    failed = {row.id: row for row in await rows(engine, campaign) if row.status == "failed"}
    assert (failed[seventh].reason, failed[seventh].concluded) == ("unbuildable", True)
    assert failed[ninth].error_code == UNDELIVERABLE
    assert len(meta.times_sent) == 49
    assert set(meta.times_sent.values()) == {1}


async def test_cl_02_a_webhook_is_not_from_the_future_whatever_ingests_clock_says(
    engine: AsyncEngine,
) -> None:
    """What stays unknown is sent again only when the number was seen alive for long enough."""
    ahead = datetime.now(UTC) + timedelta(minutes=5)
    await put(engine, webhook([], NUMBER), at=ahead)
    await apply_once(engine, await Installation(engine, None).id())
    async with engine.connect() as connection:
        seen = text(
            "SELECT received_at <= now() FROM webhook_heartbeats WHERE phone_number_id = :n"
        )
        assert await connection.scalar(seen, {"n": NUMBER}) is True


async def test_cr_05_a_row_that_waits_keeps_its_campaign_open_and_says_until_when(
    api: Api, engine: AsyncEngine, redis: Redis
) -> None:
    await plant_number(engine, headroom=0)
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 3, status="delivered")
    (last,) = await plant_messages(engine, campaign, due_in=600, attempt=2, spent=1)
    assert await complete(engine) == 0
    (found,) = (await api.get("/v1/campaigns")).json()["data"]
    told = (await api.get(f"/v1/campaigns/{found['id']}")).json()
    (waits,) = (one for one in told["holding"] if one["reason"] == "nothing_due")
    due_at = next(row.due_at for row in await rows(engine, campaign) if row.id == last)
    assert told["state"] == "running"
    assert datetime.fromisoformat(waits["ends_at"]) == due_at

    await run(engine, "UPDATE messages SET due_at = now() WHERE id = :id", id=last)
    async with sending(engine, redis, Meta()):
        await become(engine, campaign, delivered=3, accepted=1)
    assert await complete(engine) == 1


async def test_rd_10_a_person_with_two_attempts_counts_once(
    api: Api, engine: AsyncEngine, redis: Redis
) -> None:
    first, second = "wamid.TEST0310a", "wamid.TEST0310b"
    # Its only attempt, or the code would make it wait for the next one by itself.
    campaign = await plant_campaign(engine, max_attempts=1)
    (one,) = await plant_messages(engine, campaign, status="accepted", wamid=first, spent=1)
    installation = await Installation(engine, None).id()

    async def says(attempt: int, wamid: str, name: str, code: int | None = None) -> None:
        token = Token(installation, one, attempt)
        await put(engine, webhook([status(token, name, wamid=wamid, code=code)], NUMBER))
        while await apply_once(engine, installation):
            pass

    await says(1, first, "failed", 131000)
    (found,) = (await api.get("/v1/campaigns")).json()["data"]
    path = f"/v1/campaigns/{found['id']}"
    assert (await api.post(f"{path}/retry", json={"status": "failed"})).json()["requeued"] == 1
    meta = Meta(lambda _: httpx.Response(200, json={"messages": [{"id": second}]}))
    async with sending(engine, redis, meta):
        await become(engine, campaign, accepted=1)
    await says(2, second, "delivered")
    await says(1, first, "failed", 131000)
    await says(2, second, "read")

    row = await one_row(engine, campaign)
    assert (row.status, row.attempt, row.wamid, row.error_code) == ("read", 2, second, None)
    counts = (await api.get(path)).json()["counts"]
    assert {name: count for name, count in counts.items() if count} == {"read": 1, "total": 1}
    assert [past.wamid for past in (await history(engine, [one]))[one]] == [first]
    await check_counters(engine, campaign)
