"""What happens to messages between the roster and their row: the pipeline as a whole."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from pipeline import ACCESS_TOKEN, BOUND_S, Meta, accept, become, never, refuse, sending
from planting import (
    NUMBER,
    TEMPLATE,
    Past,
    Row,
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
from prometheus_client import REGISTRY
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncEngine
from waiting import until

from services.sender.orchestration.completer import complete
from services.sender.pipeline.bucket import Bucket
from services.sender.pipeline.desk import Bounds
from shared.db.installation import Installation
from shared.domain.tokens import Token
from shared.redis import create_redis
from shared.settings import SettingsError

GREETING = {
    **TEMPLATE,
    "components": [{"type": "body", "parameters": [{"type": "text", "text": "{{name}}"}]}],
}


async def test_wf_01_the_exact_request(engine: AsyncEngine, redis: Redis) -> None:
    meta = Meta()
    campaign = await plant_campaign(engine)
    (message,) = await plant_messages(engine, campaign)
    await run(engine, "UPDATE recipients SET phone = '12025550123'")

    async with sending(engine, redis, meta):
        await become(engine, campaign, accepted=1)

    installation = await Installation(engine, None).id()
    (request,) = meta.requests
    assert request.method == "POST"
    assert str(request.url) == f"https://graph.example/v25.0/{NUMBER}/messages"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["authorization"] == f"Bearer {ACCESS_TOKEN}"
    assert int(request.headers["content-length"]) == len(request.content)
    assert json.loads(request.content) == {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "to": "+12025550123",
        "type": "template",
        "template": {"name": "order_ok", "language": {"code": "en"}},
        "biz_opaque_callback_data": Token(installation, message, 1).encode(),
    }
    row = await one_row(engine, campaign)
    assert (row.wamid, row.spent) == (f"wamid.{meta.bodies[0]['biz_opaque_callback_data']}", 1)


DETAILS = "buttons: Button at index 0 of type Url requires a parameter"
WF_03 = {
    "a": {
        "error": {
            "message": "(#131008) Required parameter is missing",
            "type": "OAuthException",
            "code": 131008,
            "error_data": {"details": DETAILS},
        }
    },
    "b": {
        "messaging_product": "whatsapp",
        "contacts": [{"input": "12025550123", "wa_id": "12025550123"}],
        "messages": [],
    },
    "c": {},
    "d": None,
    "e": {"error": "boom"},
}


async def test_wf_03_a_200_is_no_success_by_itself(engine: AsyncEngine, redis: Redis) -> None:
    campaign = await plant_campaign(engine)
    ids = await plant_messages(engine, campaign, len(WF_03) + 1)
    phones = [f"+{12025000000 + one}" for one in ids]
    replies = dict(zip(phones, WF_03.values(), strict=False))

    def answer(body: dict[str, Any]) -> httpx.Response:
        if body["to"] not in replies:
            return accept(body)
        reply = replies[body["to"]]
        return httpx.Response(200, content=b"" if reply is None else json.dumps(reply).encode())

    meta = Meta(answer)
    async with sending(engine, redis, meta):
        await become(engine, campaign, failed=1, unknown=4, accepted=1)
        assert await complete(engine) == 1

    assert meta.times_sent == dict.fromkeys(phones, 1)
    refused, *unknown, last = await rows(engine, campaign)
    assert (refused.status, refused.error_code, refused.attempt) == ("failed", 131008, 1)
    assert (await history(engine, ids))[refused.id] == [
        Past(1, "failed", 131008, None, DETAILS, None)
    ]
    for row in unknown:
        assert (row.status, row.reason, row.attempt, row.spent) == ("unknown", "http_200", 1, 0)
    assert last.status == "accepted"
    await check_counters(engine, campaign)


async def test_a_throttled_message_goes_back_and_leaves_again_later(
    engine: AsyncEngine, redis: Redis
) -> None:
    campaign = await plant_campaign(engine)
    (message,) = await plant_messages(engine, campaign)
    meta = Meta()
    meta.answer = lambda body: refuse(130429) if len(meta.requests) == 1 else accept(body)

    async with sending(engine, redis, meta):
        await become(engine, campaign, accepted=1)

    row = await one_row(engine, campaign)
    assert (row.attempt, row.spent, row.error_code) == (2, 1, None)
    assert meta.attempts == [1, 2]
    assert (await history(engine, [message]))[message] == [
        Past(1, "throttled", 130429, None, "why", "trace")
    ]
    bucket = set(await redis.hkeys(f"headrace:bucket:{NUMBER}"))
    assert {b"paused_until", b"factor"} <= bucket
    await check_counters(engine, campaign)


async def test_a_refusal_that_may_pass_is_tried_again(engine: AsyncEngine, redis: Redis) -> None:
    campaign = await plant_campaign(engine, max_attempts=2)
    ids = await plant_messages(engine, campaign, 5)
    never_good = f"+{12025000000 + ids[0]}"
    meta = Meta()

    def answer(body: dict[str, Any]) -> httpx.Response:
        good = body["to"] != never_good and meta.times_sent[body["to"]] > 1
        return accept(body) if good else refuse(131000)

    meta.answer = answer
    async with sending(engine, redis, meta):
        await become(engine, campaign, accepted=4, failed=1)

    assert set(meta.times_sent.values()) == {2}
    failed = (await rows(engine, campaign))[0]
    assert (failed.status, failed.error_code, failed.spent) == ("failed", 131000, 2)
    assert failed.concluded
    await check_counters(engine, campaign)


@pytest.mark.parametrize("error", [httpx.ReadTimeout("late"), httpx.ReadError("reset")])
async def test_what_may_have_left_is_unknown_and_never_sent_again(
    engine: AsyncEngine, redis: Redis, error: Exception
) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 3)

    def answer(_: dict[str, Any]) -> httpx.Response:
        raise error

    meta = Meta(answer)
    async with sending(engine, redis, meta):
        await become(engine, campaign, unknown=3)
        assert await complete(engine) == 1

    assert set(meta.times_sent.values()) == {1}
    assert {row.spent for row in await rows(engine, campaign)} == {0}


async def test_when_nobody_can_be_reached_nothing_is_spent_and_nothing_is_lost(
    engine: AsyncEngine, redis: Redis
) -> None:
    campaign = await plant_campaign(engine)
    ids = await plant_messages(engine, campaign, 20)
    meta = Meta()

    def answer(body: dict[str, Any]) -> httpx.Response:
        if len(meta.requests) == 1:
            raise httpx.ConnectError("refused")
        return accept(body)

    meta.answer = answer
    async with sending(engine, redis, meta):
        await become(engine, campaign, accepted=20)

    assert len(meta.requests) == 21
    assert {row.spent for row in await rows(engine, campaign)} == {1}
    assert not any((await history(engine, ids)).values())


async def test_a_process_without_a_way_to_meta_holds_only_itself(
    engine: AsyncEngine, redis: Redis
) -> None:
    """Its network may be what is broken: the number goes on in the other processes."""
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 20)

    def cut_off(_: dict[str, Any]) -> httpx.Response:
        raise httpx.ConnectError("refused")

    cut = Meta(cut_off)
    async with sending(engine, redis, cut):
        await until(lambda: cut.requests, BOUND_S)
        assert (await Bucket(redis, NUMBER).book(1, 80, 0)).wait < 1
        async with sending(engine, redis, Meta()):
            await become(engine, campaign, accepted=20)


def was_returned_twice(row: Row) -> bool:
    return row.attempt > 2


async def test_a_stale_claim_is_handed_back_unsent(engine: AsyncEngine, redis: Redis) -> None:
    meta = Meta()
    campaign = await plant_campaign(engine)
    (message,) = await plant_messages(engine, campaign)

    async with sending(engine, redis, meta, bounds=Bounds(lease_s=0)):
        await until(partial(one_row, engine, campaign), BOUND_S, is_right=was_returned_twice)

    assert meta.requests == []
    row = await one_row(engine, campaign)
    assert (row.status, row.spent) == ("pending", 0)
    assert (await history(engine, [message]))[message] == []
    await check_counters(engine, campaign)


async def test_a_drain_hands_back_what_did_not_leave_and_forgets_nothing_that_did(
    engine: AsyncEngine, redis: Redis
) -> None:
    await plant_number(engine, rate=200, headroom=0)
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 500)
    meta = Meta(never)
    async with sending(engine, redis, meta) as sender:
        await until(lambda: len(meta.requests) >= 5, BOUND_S)
        cut = await sender.stop(1)

        sent = len(meta.requests)
        assert cut == sent < 500
        assert await statuses(engine, campaign) == {"unknown": sent, "pending": 500 - sent}

    for row in await rows(engine, campaign):
        assert row.spent == 0
        if row.status == "unknown":
            assert (row.attempt, row.reason) == (1, "cancelled")
    await check_counters(engine, campaign)


async def test_a_drain_waits_for_what_is_on_the_wire(engine: AsyncEngine, redis: Redis) -> None:
    await plant_number(engine, rate=200, headroom=0)
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 20)
    meta = Meta()
    async with sending(engine, redis, meta) as sender:
        await until(lambda: len(meta.requests) >= 5, BOUND_S)
        assert await sender.stop(BOUND_S) == 0

    sent = len(meta.requests)
    left = {"pending": 20 - sent} if sent < 20 else {}
    assert await statuses(engine, campaign) == {"accepted": sent, **left}


async def test_a_missing_value_fails_its_row_alone(engine: AsyncEngine, redis: Redis) -> None:
    meta = Meta()
    campaign = await plant_campaign(engine, template=GREETING)
    await plant_messages(engine, campaign)
    await plant_messages(engine, campaign, parameters={"name": " "})
    (good,) = await plant_messages(engine, campaign, parameters={"name": "Ana"})

    async with sending(engine, redis, meta):
        await become(engine, campaign, failed=2, accepted=1)

    (body,) = meta.bodies
    assert body["template"]["components"] == [
        {"type": "body", "parameters": [{"type": "text", "text": "Ana"}]}
    ]
    for row in await rows(engine, campaign):
        if row.id != good:
            assert (row.status, row.reason, row.concluded) == ("failed", "missing_value", True)
            assert row.error_code is None
    await check_counters(engine, campaign)


async def test_without_redis_nothing_leaves_and_nothing_is_claimed(
    engine: AsyncEngine, tmp_path: Path
) -> None:
    meta = Meta()
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 3)
    before = refused_bookings()
    async with create_redis(f"unix://{tmp_path}/nobody.sock") as gone, sending(engine, gone, meta):
        await until(lambda: refused_bookings() > before, BOUND_S)

        assert await statuses(engine, campaign) == {"pending": 3}
    assert meta.requests == []


def refused_bookings() -> float:
    labels = {"loop": "prepare", "result": "error"}
    return REGISTRY.get_sample_value("headrace_loop_runs_total", labels) or 0


async def test_each_number_sends_with_its_own_token(engine: AsyncEngine, redis: Redis) -> None:
    await plant_number(engine, "1", token_name="A")
    await plant_number(engine, "2", token_name="MISSING")
    campaigns = [await plant_campaign(engine, phone_number_id=number) for number in "12"]
    for campaign in campaigns:
        await plant_messages(engine, campaign, 2)

    def token_for(name: str | None) -> str:
        if name == "MISSING":
            raise SettingsError("HEADRACE_ACCESS_TOKEN_MISSING: is missing")
        return f"token-{name}"

    meta = Meta()
    async with sending(engine, redis, meta, token_for=token_for):
        await become(engine, campaigns[0], accepted=2)

    assert {request.headers["authorization"] for request in meta.requests} == {"Bearer token-A"}
    assert {request.url.path for request in meta.requests} == {"/v25.0/1/messages"}
    assert await statuses(engine, campaigns[1]) == {"pending": 2}


async def test_the_campaigns_endpoint_is_used(engine: AsyncEngine, redis: Redis) -> None:
    meta = Meta()
    campaign = await plant_campaign(engine, endpoint="marketing_messages")
    await plant_messages(engine, campaign)
    async with sending(engine, redis, meta):
        await become(engine, campaign, accepted=1)

    assert meta.requests[0].url.path == f"/v25.0/{NUMBER}/marketing_messages"


async def test_two_senders_share_one_number(engine: AsyncEngine, redis: Redis) -> None:
    await plant_number(engine, rate=400, headroom=0)
    one, other = await plant_campaign(engine), await plant_campaign(engine)
    for campaign in (one, other):
        await plant_messages(engine, campaign, 150)
    meta = Meta()
    async with sending(engine, redis, meta), sending(engine, redis, meta):
        await become(engine, one, accepted=150)
        await become(engine, other, accepted=150)

    assert len(meta.requests) == 300
    assert set(meta.times_sent.values()) == {1}
    await check_counters(engine, one, other)


async def test_a_row_that_becomes_pending_later_is_found(engine: AsyncEngine, redis: Redis) -> None:
    """Also below the mark up to which this process has looked."""
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 3, due_in=-10)
    meta = Meta()
    async with sending(engine, redis, meta):
        await become(engine, campaign, accepted=3)
        await plant_messages(engine, campaign, 2, due_in=-3600)
        await become(engine, campaign, accepted=5)
