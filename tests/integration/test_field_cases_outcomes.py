"""What people met in the field with Meta's errors, each under its id, over a real socket."""

import json
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from ingest_rows import installation_of, put, status, webhook
from pipeline import BOUND_S, Meta, accept, become, never, refuse, sending
from planting import (
    NUMBER,
    campaign_state,
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
from sender_api import SETTINGS
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from waiting import until
from wire import wired

from services.ingest.inbox import apply_once
from services.sender.orchestration.breaker import break_failing
from services.sender.orchestration.completer import complete
from services.sender.pipeline.bucket import look
from shared.domain.tokens import Token

HTML = b"<html>Bad Gateway</html>" + b"." * 900
RESUME = "UPDATE campaigns SET state = 'running', pause_reason = NULL WHERE state = 'paused'"
# What leaves in the moment between a refusal and its arrival.
MOMENT = 15
# Several times as long as the bucket is paused.
LONG_S = 3.5


def page(http_status: int, content: bytes = HTML, **headers: str) -> httpx.Response:
    headers = {"content-type": "text/html", **headers}
    return httpx.Response(http_status, content=content, headers=headers)


def error(http_status: int, told: Any) -> httpx.Response:
    return httpx.Response(http_status, json={"error": told})


def first_gets(reply: httpx.Response) -> Meta:
    """A Meta that answers the first request so, and accepts every other."""
    meta = Meta()
    meta.answer = lambda body: reply if len(meta.requests) == 1 else accept(body)
    return meta


def place_of(meta: Meta) -> int:
    """How many requests have come."""
    return len(meta.requests)


def paused_for(reason: str) -> Callable[[tuple[str, str | None]], bool]:
    return ("paused", reason).__eq__


async def number_of(engine: AsyncEngine, number: str = NUMBER) -> tuple[str, str | None]:
    query = text("SELECT state, paused_reason FROM numbers WHERE phone_number_id = :number")
    async with engine.connect() as connection:
        found = (await connection.execute(query, {"number": number})).one()
    return found.state, found.paused_reason


# The reply, then the row's status, its attempt and what it has spent when all is over.
ER_01 = {
    "a: 429 html": (page(429), ("accepted", 2, 1)),
    "b: 503 html": (page(503), ("accepted", 2, 2)),
    "c: 502 html": (page(502), ("unknown", 1, 0)),
    "d: 504 empty": (page(504, b""), ("unknown", 1, 0)),
    "e: 400 empty": (page(400, b""), ("failed", 1, 1)),
    "f: 500, an error of text": (
        error(500, "string instead of object"),
        ("unknown", 1, 0),
    ),
    "not UTF-8": (page(400, b"\xff\xfe\0" * 400), ("failed", 1, 1)),
    "another JSON": (page(502, b"[" * 9000), ("unknown", 1, 0)),
}


@pytest.mark.parametrize(("reply", "ends"), ER_01.values(), ids=ER_01.keys())
async def test_er_01_a_page_in_the_place_of_json(
    engine: AsyncEngine, redis: Redis, reply: httpx.Response, ends: tuple[str, int, int]
) -> None:
    await plant_number(engine, rate=200, headroom=0)
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 4)
    meta = first_gets(reply)
    kind, attempt, _ = ends

    async with wired(meta), sending(engine, redis, meta):
        expected = {"accepted": 4} if kind == "accepted" else {kind: 1, "accepted": 3}
        await become(engine, campaign, **expected)

    first = int(meta.bodies[0]["to"]) - 12025000000
    (row,) = [row for row in await rows(engine, campaign) if row.id == first]
    assert (row.status, row.attempt, row.spent) == ends
    assert max(meta.times_sent.values()) == attempt
    (past,) = (await history(engine, [first]))[first]
    told = reply.content.decode(errors="replace").replace("\0", "")[:500]
    assert past.details == told
    await check_counters(engine, campaign)


async def test_er_03_a_short_429_slows_the_number_and_stops_nobody(
    engine: AsyncEngine, redis: Redis
) -> None:
    await plant_number(engine, "2", rate=200, headroom=0)
    campaign = await plant_campaign(engine)
    other = await plant_campaign(engine, phone_number_id="2")
    await plant_messages(engine, campaign)
    times: list[float] = []

    def answer(body: dict[str, Any]) -> httpx.Response:
        if "/2/" not in meta.requests[-1].url.path:
            times.append(time.monotonic())
            if len(times) == 1:
                return httpx.Response(429, json={}, headers={"retry-after": "2"})
        return accept(body)

    meta = Meta(answer)
    async with wired(meta), sending(engine, redis, meta):
        await until(lambda: times, BOUND_S)
        await plant_messages(engine, other, 20)
        await become(engine, other, accepted=20)
        others_through = time.monotonic()
        _, states = await look(redis, [NUMBER, "2"])
        await become(engine, campaign, accepted=1)

    assert len(times) == 2
    assert times[1] - times[0] >= 2
    row = await one_row(engine, campaign)
    assert (row.attempt, row.spent) == (2, 1)
    assert await campaign_state(engine, campaign) == ("running", None)
    assert await number_of(engine) == ("active", None)
    assert states["2"].paused_s == 0
    if others_through < times[0] + 1.5:
        assert states[NUMBER].throttled


async def test_er_05_a_spam_limit_stops_its_number_alone(engine: AsyncEngine, redis: Redis) -> None:
    await plant_number(engine, rate=400, headroom=0)
    await plant_number(engine, "2", rate=400, headroom=0)
    one, two = await plant_campaign(engine), await plant_campaign(engine)
    elsewhere = await plant_campaign(engine, phone_number_id="2")
    for campaign in (one, two):
        await plant_messages(engine, campaign, 300)
    await plant_messages(engine, elsewhere, 100)
    sent: list[str] = []

    def answer(body: dict[str, Any]) -> httpx.Response:
        if "/2/" in meta.requests[-1].url.path:
            return accept(body)
        sent.append(body["to"])
        return refuse(131048) if len(sent) == 37 else accept(body)

    meta = Meta(answer)
    async with wired(meta), sending(engine, redis, meta) as sender:
        await until(partial(number_of, engine), BOUND_S, is_right=paused_for("meta:131048"))
        await become(engine, elsewhere, accepted=100)
        await sender.crew.refresh()
        await until(partial(claimed, engine, one, two), BOUND_S, is_right=(0).__eq__)

    assert 37 <= len(sent) <= 37 + MOMENT
    assert len(set(sent)) == len(sent)
    found = await rows(engine, one) + await rows(engine, two)
    (refused,) = [row for row in found if row.error_code == 131048]
    assert (refused.status, refused.spent) == ("pending", 0)
    waiting = [row for row in found if row.status == "pending"]
    assert len(waiting) == 600 - len(sent) + 1
    assert {row.spent for row in waiting} == {0}
    await check_counters(engine, one, two, elsewhere)


@pytest.mark.parametrize(
    ("code", "held"),
    [(131048, "numbers"), (190, "campaigns"), (132001, "campaigns")],
)
async def test_er_05_a_stop_holds_while_its_pause_cannot_be_written(
    engine: AsyncEngine, redis: Redis, code: int, held: str
) -> None:
    await plant_number(engine, rate=400, headroom=0)
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 600)
    meta = Meta(lambda _: refuse(code))
    async with engine.connect() as holder, wired(meta), sending(engine, redis, meta):
        await holder.execute(text(f"SELECT FROM {held} FOR UPDATE"))
        await until(lambda: meta.requests, BOUND_S)
        end = time.monotonic() + LONG_S
        await until(lambda: time.monotonic() > end)
        assert len(meta.requests) <= 1 + MOMENT
        await holder.rollback()
        await become(engine, campaign, pending=600)

    assert {row.spent for row in await rows(engine, campaign)} == {0}
    await check_counters(engine, campaign)


async def claimed(engine: AsyncEngine, *campaigns: int) -> int:
    return sum([(await statuses(engine, one)).get("claimed", 0) for one in campaigns])


async def told_by_webhook(
    engine: AsyncEngine, sent: list[dict[str, Any]], name: str, code: int | None = None
) -> None:
    """Meta's webhooks about these messages, stored and applied."""
    tokens = [Token.parse(body["biz_opaque_callback_data"]) for body in sent]
    at = datetime.now(UTC)
    told = [
        status(token, name, at=at, wamid=f"wamid.{body['biz_opaque_callback_data']}", code=code)
        for token, body in zip(tokens, sent, strict=True)
    ]
    await put(engine, webhook(told))
    while await apply_once(engine, await installation_of(engine)):
        pass


async def test_er_07_people_without_whatsapp_stop_nobody(engine: AsyncEngine, redis: Redis) -> None:
    await plant_number(engine, rate=400, headroom=0)
    campaign = await plant_campaign(engine, breaker={"share": 0.5, "of_last": 20})
    ids = await plant_messages(engine, campaign, 100)
    early = {f"+{12025000000 + one}" for one in ids[:30]}
    meta = Meta(lambda body: refuse(131026) if body["to"] in early else accept(body))

    async with wired(meta), sending(engine, redis, meta):
        await become(engine, campaign, failed=30, accepted=70)
        accepted = [body for body in meta.bodies if body["to"] not in early]
        await told_by_webhook(engine, accepted[:30], "failed", 131026)
        await told_by_webhook(engine, accepted[30:], "delivered")
        assert await break_failing(engine) == 0
        await become(engine, campaign, failed=60, delivered=40)
        assert await complete(engine) == 1

    assert set(meta.times_sent.values()) == {1}
    assert {row.error_code for row in await rows(engine, campaign)} == {131026, None}
    assert (await campaign_state(engine, campaign))[0] == "completed"
    await check_counters(engine, campaign)


async def test_er_09_an_experiment_is_final_and_nobody_is_opted_out(
    engine: AsyncEngine, redis: Redis
) -> None:
    campaign = await plant_campaign(engine, breaker={"share": 0.1, "of_last": 20})
    await plant_messages(engine, campaign, 10)
    meta = Meta()

    async with wired(meta), sending(engine, redis, meta) as sender:
        await become(engine, campaign, accepted=10)
        await told_by_webhook(engine, meta.bodies, "failed", 130472)
        assert await break_failing(engine) == 0
        await sender.crew.refresh()
        assert await complete(engine) == 1

    assert len(meta.requests) == 10
    found = {(row.status, row.error_code) for row in await rows(engine, campaign)}
    assert found == {("failed", 130472)}
    async with engine.connect() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM opt_outs")) == 0


@pytest.mark.parametrize("code", [0, 10, 190, 299, 131005])
async def test_er_11_a_dead_token_fails_nobody(
    engine: AsyncEngine, redis: Redis, code: int
) -> None:
    await plant_number(engine, rate=400, headroom=0)
    for number, token in (("2", None), ("3", "OTHER")):
        await plant_number(engine, number, token_name=token, rate=400, headroom=0)
    campaign = await plant_campaign(engine)
    same, other = [await plant_campaign(engine, phone_number_id=number) for number in "23"]
    await plant_messages(engine, campaign, 80)
    accepted: list[str] = []
    renewed = False

    def answer(body: dict[str, Any]) -> httpx.Response:
        if renewed or len(accepted) < 19:
            accepted.append(body["to"])
            return accept(body)
        told = {"code": code, "message": "Session has expired", "error_subcode": 463}
        return error(401, told)

    meta = Meta(answer)
    async with wired(meta), sending(engine, redis, meta):
        for one in (campaign, same):
            state = partial(campaign_state, engine, one)
            await until(state, BOUND_S, is_right=paused_for("token"))
        await become(engine, campaign, accepted=19, pending=61)
        assert await campaign_state(engine, other) == ("running", None)
        assert {row.spent for row in await rows(engine, campaign)} == {0, 1}

        renewed = True
        await run(engine, RESUME)
        await become(engine, campaign, accepted=80)

    assert len(accepted) == len(set(accepted)) == 80
    assert len(meta.requests) <= 80 + MOMENT
    await check_counters(engine, campaign)


@pytest.mark.parametrize("name", [None, "clinic"])
async def test_au_01_a_new_token_in_its_file_acts_without_a_restart(
    engine: AsyncEngine,
    redis: Redis,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str | None,
) -> None:
    secret = tmp_path / "token"
    secret.write_text("TOKEN-OLD\n")
    variable = "HEADRACE_ACCESS_TOKEN" + (f"_{name.upper()}" if name else "")
    monkeypatch.setenv(f"{variable}_FILE", str(secret))
    await plant_number(engine, rate=400, headroom=0, token_name=name)
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 60)
    bearers: list[str] = []

    def answer(body: dict[str, Any]) -> httpx.Response:
        bearers.append(meta.requests[-1].headers["authorization"])
        good = len(bearers) <= 10 or bearers[-1] == "Bearer TOKEN-NEW"
        return accept(body) if good else error(401, {"code": 190, "error_subcode": 463})

    meta = Meta(answer)
    async with wired(meta), sending(engine, redis, meta, token_for=SETTINGS.token_for):
        state = partial(campaign_state, engine, campaign)
        await until(state, BOUND_S, is_right=paused_for("token"))
        await become(engine, campaign, accepted=10, pending=50)
        before = len(bearers)

        secret.write_text("TOKEN-NEW\n")
        await run(engine, RESUME)
        await become(engine, campaign, accepted=60)

    assert set(bearers[:before]) == {"Bearer TOKEN-OLD"}
    assert bearers[before:] == ["Bearer TOKEN-NEW"] * 50
    await check_counters(engine, campaign)


# The reply to the first request, the row when it is over, and the campaign.
ER_13 = {
    "a German text": (
        error(400, {"message": "(#132001) Der Vorlagenname existiert nicht", "code": 132001}),
        ("pending", 2, 0, 132001),
        ("paused", "template"),
    ),
    "a code in text": (
        error(400, {"message": "Something", "code": "130429"}),
        ("accepted", 2, 1, None),
        ("running", None),
    ),
    "a new code, 4xx": (
        error(400, {"message": "New thing", "code": 199999}),
        ("failed", 1, 1, 199999),
        ("running", None),
    ),
    "a new code, 5xx": (
        error(500, {"message": "New thing", "code": 199998}),
        ("unknown", 1, 0, 199998),
        ("running", None),
    ),
}


@pytest.mark.parametrize(("reply", "ends", "state"), ER_13.values(), ids=ER_13.keys())
async def test_er_13_codes_are_read_and_texts_are_not(
    engine: AsyncEngine,
    redis: Redis,
    reply: httpx.Response,
    ends: tuple[str, int, int, int | None],
    state: tuple[str, str | None],
) -> None:
    campaign = await plant_campaign(engine)
    (message,) = await plant_messages(engine, campaign)
    meta = first_gets(reply)

    async with wired(meta), sending(engine, redis, meta):
        await become(engine, campaign, **{ends[0]: 1})
        await until(partial(campaign_state, engine, campaign), is_right=state.__eq__)

    row = await one_row(engine, campaign)
    assert (row.status, row.attempt, row.spent, row.error_code) == ends
    (past,) = (await history(engine, [message]))[message]
    assert past.details == json.loads(reply.content)["error"]["message"]


ER_15: dict[str, tuple[Callable[[dict[str, Any]], httpx.Response | Awaitable[httpx.Response]], str]]
ER_15 = {"a": (lambda _: refuse(131030), "failed"), "b": (never, "unknown")}


@pytest.mark.parametrize(("answer", "ends"), ER_15.values(), ids=ER_15.keys())
async def test_er_15_no_other_spelling_of_a_number_is_tried(
    engine: AsyncEngine, redis: Redis, answer: Any, ends: str
) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign)
    await run(engine, "UPDATE recipients SET phone = '5491155550123'")
    meta = Meta(answer)

    async with (
        wired(meta, read_timeout=0.5),
        sending(engine, redis, meta) as sender,
    ):
        await become(engine, campaign, **{ends: 1})
        await sender.crew.refresh()
        assert await complete(engine) == 1

    assert [body["to"] for body in meta.bodies] == ["+5491155550123"]


async def test_rl_05_exactly_so_many_attempts_and_no_slot_while_it_waits(
    engine: AsyncEngine, redis: Redis
) -> None:
    await plant_number(engine, rate=400, headroom=0)
    campaign = await plant_campaign(engine, max_attempts=5)
    (unlucky,) = await plant_messages(engine, campaign)
    theirs = f"+{12025000000 + unlucky}"
    await plant_messages(engine, campaign, 40)

    def answer(body: dict[str, Any]) -> httpx.Response:
        if body["to"] != theirs:
            return accept(body)
        return httpx.Response(500, json={"error": {"code": 131016}})

    meta = Meta(answer)
    waits: list[timedelta] = []
    async with (
        wired(meta),
        # A single slot: whoever waited in it would keep all others from leaving.
        sending(engine, redis, meta, concurrency=1),
    ):
        for attempt in range(2, 6):
            waits.append(await until(partial(wait_of, engine, unlucky, attempt), BOUND_S))
            await run(engine, "UPDATE messages SET due_at = now() WHERE id = :id", id=unlucky)
        await become(engine, campaign, failed=1, accepted=40)
        assert await complete(engine) == 1

    assert meta.times_sent[theirs] == 5
    for judged, wait in enumerate(waits):
        assert timedelta(0) <= wait <= timedelta(seconds=1 << judged)
    assert [past.attempt for past in (await history(engine, [unlucky]))[unlucky]] == [1, 2, 3, 4, 5]
    await check_counters(engine, campaign)


async def wait_of(engine: AsyncEngine, message: int, attempt: int) -> timedelta | None:
    """How long a row waits for this attempt, measured from the end of the one before."""
    query = text("""
        SELECT greatest(m.due_at - a.recorded_at, interval '1 microsecond')
        FROM messages m JOIN attempts a ON a.message_id = m.id AND a.attempt = m.attempt - 1
        WHERE m.id = :id AND m.attempt = :attempt
    """)
    async with engine.connect() as connection:
        values = {"id": message, "attempt": attempt}
        found: timedelta | None = await connection.scalar(query, values)
    return found


async def test_what_failed_together_comes_back_spread(engine: AsyncEngine, redis: Redis) -> None:
    await plant_number(engine, rate=1000, headroom=0)
    campaign = await plant_campaign(engine, breaker={"share": 1, "of_last": 100})
    await plant_messages(engine, campaign, 200, spent=3)
    meta = Meta(lambda _: refuse(131000))
    async with wired(meta), sending(engine, redis, meta):
        await until(lambda: place_of(meta) >= 60, BOUND_S)
        await run(engine, "UPDATE campaigns SET state = 'paused', pause_reason = 'operator'")
        await until(partial(claimed, engine, campaign), BOUND_S, is_right=(0).__eq__)

    async with engine.connect() as connection:
        waits = await connection.scalars(
            text("""
                SELECT extract(epoch FROM m.due_at - a.recorded_at)::float8
                FROM messages m JOIN attempts a ON a.message_id = m.id AND a.attempt = 1
                WHERE m.attempt = 2 ORDER BY 1
            """)
        )
        found = list(waits)
    assert len(found) >= 60
    assert 0 <= found[0] < 1.5
    assert 6.5 < found[-1] <= 8
