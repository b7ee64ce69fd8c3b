"""Live messages: what leaves, what the caller is told, and what the rows say afterwards."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from ingest_rows import evidence
from live_site import HELLO, PERSON, Site, running
from pipeline import GRAPH, Meta, never, refuse
from planting import check_counters, claim_all, one_row, rows, run
from redis.asyncio import Redis
from sender_api import NUMBER, SETTINGS
from sqlalchemy.ext.asyncio import AsyncEngine
from waiting import until

from services.ingest.apply import apply
from services.sender.orchestration.reclaimer import reclaim
from services.sender.pipeline.bucket import Bucket, look
from services.sender.pipeline.live import LiveMessage
from services.sender.pipeline.outcome import Accepted
from shared.domain.phones import Phone
from shared.redis import create_redis
from shared.whatsapp.live import Kind

TEMPLATE = {"name": "order_ok", "language": "en"}
MESSAGE = LiveMessage(Phone("12025550142", "12025550142"), Kind.TEXT, {"body": "x"}, None, 1)


@pytest.fixture
async def site(engine: AsyncEngine, redis: Redis) -> AsyncGenerator[Site]:
    meta = Meta()
    settings = SETTINGS.model_copy(update={"graph_url": GRAPH})
    async with running(engine, redis, httpx.MockTransport(meta.handle), meta, settings) as found:
        yield found


def html_502(_: dict[str, Any]) -> httpx.Response:
    return httpx.Response(502, html="<h1>Bad Gateway</h1>")


def refused_connection(_: dict[str, Any]) -> httpx.Response:
    raise httpx.ConnectError("refused")


async def test_it_is_answered_with_its_wamid_and_stands_as_a_row(site: Site) -> None:
    answer = await site.say(HELLO | {"context": {"message_id": "wamid.before"}})

    assert answer.status_code == 200
    (body,) = site.meta.bodies
    token = body.pop("biz_opaque_callback_data")
    assert body == {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "to": PERSON,
        "type": "text",
        "text": HELLO["text"],
        "context": {"message_id": "wamid.before"},
    }
    told = answer.json()
    assert told == {"id": told["id"], "status": "accepted", "wamid": f"wamid.{token}"}
    assert token.split(":")[2:] == [str(told["id"]), "1"]
    row = await one_row(site.engine, await site.campaign())
    assert (row.id, row.status, row.attempt, row.wamid) == (
        told["id"],
        "accepted",
        1,
        told["wamid"],
    )
    shown = await site.shown(answer)
    assert (shown["status"], shown["type"], shown["phone"]) == ("accepted", "text", PERSON[1:])
    assert shown["attempts"] == []
    await check_counters(site.engine, await site.campaign())


async def test_it_counts_among_what_the_number_has_sent(site: Site) -> None:
    await site.say()
    site.meta.answer = refused_connection
    await site.say()

    async def sent() -> int:
        shown = (await site.api.get(f"/v1/phone-numbers/{NUMBER}")).json()
        return int(shown["sends_last_minute"])

    # The newest whole second is not counted yet.
    assert await until(sent) == 1


async def test_a_template_leaves_as_a_campaigns_would(site: Site) -> None:
    parts = [
        {"type": "header", "parameters": []},
        {"type": "body", "parameters": [{"type": "text", "text": "two\nlines"}]},
    ]
    answer = await site.say({"to": PERSON, "template": TEMPLATE | {"components": parts}})

    assert answer.status_code == 200
    assert site.meta.bodies[0]["template"] == {
        "name": "order_ok",
        "language": {"code": "en"},
        "components": [{"type": "body", "parameters": [{"type": "text", "text": "two lines"}]}],
    }


async def test_one_person_gets_many_and_no_list_of_campaigns_shows_them(site: Site) -> None:
    answers = await asyncio.gather(*(site.say() for _ in range(5)))

    assert [answer.status_code for answer in answers] == [200] * 5
    assert len({answer.json()["id"] for answer in answers}) == 5
    assert {row.status for row in await rows(site.engine, await site.campaign())} == {"accepted"}
    assert (await site.api.get("/v1/campaigns")).json()["data"] == []
    await check_counters(site.engine, await site.campaign())


async def test_what_cannot_be_sent_is_refused_by_name(site: Site) -> None:
    answer = await site.say({"to": "0171 1234567", "text": {"body": "x"}})

    assert answer.status_code == 422
    assert "to: " in answer.text
    assert "0171" not in answer.text
    assert site.meta.requests == []


async def test_an_end_that_nobody_knows_is_202_until_evidence_comes(site: Site) -> None:
    site.meta.answer = html_502

    answer = await site.say()

    assert answer.status_code == 202
    told = answer.json()
    assert (told["status"], told["reason"], told["wamid"]) == ("unknown", "http_502", None)
    assert (await site.shown(answer))["status"] == "unknown"
    async with site.engine.begin() as connection:
        await apply(connection, [evidence("delivered", wamid="wamid.late")(told["id"])])
    shown = await site.shown(answer)
    assert (shown["status"], shown["wamid"]) == ("delivered", "wamid.late")
    await check_counters(site.engine, await site.campaign())


async def test_what_meta_refuses_is_told_with_its_code(site: Site) -> None:
    site.meta.answer = lambda _: refuse(131047, "more than 24 hours")

    answer = await site.say()

    assert answer.status_code == 422
    told = answer.json()
    assert (told["error_code"], told["error_details"]) == (131047, "more than 24 hours")
    shown = await site.shown(answer)
    assert (shown["status"], shown["error_code"]) == ("failed", 131047)
    assert shown["error_title"] == "Re-engagement message"
    assert [one["details"] for one in shown["attempts"]] == ["more than 24 hours"]


@pytest.mark.parametrize(
    ("code", "status", "after"), [(131016, 503, "1"), (131056, 503, "6"), (131049, 503, "86400")]
)
async def test_what_may_be_tried_later_is_the_callers_to_try(
    site: Site, code: int, status: int, after: str
) -> None:
    site.meta.answer = lambda _: refuse(code)

    answer = await site.say()

    assert (answer.status_code, answer.headers["retry-after"]) == (status, after)
    row = await one_row(site.engine, await site.campaign())
    assert (row.status, row.error_code, row.concluded, row.due_at) == ("failed", code, True, None)
    await check_counters(site.engine, await site.campaign())


async def test_a_failure_by_webhook_is_not_tried_again_either(site: Site) -> None:
    answer = await site.say()
    async with site.engine.begin() as connection:
        later = evidence("failed", wamid=answer.json()["wamid"], code=131049)
        await apply(connection, [later(answer.json()["id"])])

    row = await one_row(site.engine, await site.campaign())
    assert (row.status, row.error_code, row.due_at) == ("failed", 131049, None)


async def test_throttled_it_slows_the_number_and_is_not_sent_later(
    site: Site, redis: Redis
) -> None:
    site.meta.answer = lambda _: refuse(130429)

    answer = await site.say()

    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    row = await one_row(site.engine, await site.campaign())
    assert (row.status, row.error_code, row.concluded) == ("failed", 130429, True)
    assert (row.spent, row.due_at) == (0, None)
    state = (await look(redis, [NUMBER]))[1][NUMBER]
    assert state.throttled
    assert state.pace < 0.9
    await check_counters(site.engine, await site.campaign())


async def test_who_cannot_reach_meta_is_told_so(site: Site) -> None:
    site.meta.answer = refused_connection

    answer = await site.say()

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    row = await one_row(site.engine, await site.campaign())
    assert (row.status, row.concluded, row.due_at) == ("failed", True, None)


async def test_a_failure_of_ours_yields_to_evidence(site: Site) -> None:
    site.meta.answer = refused_connection
    answer = await site.say()
    async with site.engine.begin() as connection:
        await apply(connection, [evidence("sent")(answer.json()["id"])])

    assert (await site.shown(answer))["status"] == "sent"


async def test_a_paused_number_a_halt_and_a_number_nobody_knows(site: Site) -> None:
    await site.api.post(f"/v1/phone-numbers/{NUMBER}/pause")
    paused = await site.say()
    await run(
        site.engine,
        "UPDATE numbers SET paused_reason = 'meta:131057', paused_until = now() + interval '90 s'",
    )
    for_now = await site.say()
    await site.api.post(f"/v1/phone-numbers/{NUMBER}/resume")
    await site.api.post("/v1/halt")
    halted = await site.say()
    await site.api.post("/v1/unhalt")
    unknown = await site.api.post("/v1/phone-numbers/42/messages", json=HELLO)

    assert [one.status_code for one in (paused, for_now, halted, unknown)] == [409, 409, 409, 404]
    assert "operator" in paused.json()["detail"]
    assert "meta:131057" in for_now.json()["detail"]
    assert 80 < int(for_now.headers["retry-after"]) <= 90
    assert "halted" in halted.json()["detail"]
    assert site.meta.requests == []
    assert (await site.say()).status_code == 200


async def test_who_opted_out_gets_nothing_and_the_row_says_so(site: Site) -> None:
    await run(site.engine, "INSERT INTO opt_outs VALUES (:person, 'test')", person=PERSON[1:])

    answer = await site.say()

    assert (answer.status_code, answer.json()["reason"]) == (409, "opted_out")
    row = await one_row(site.engine, await site.campaign())
    assert (row.id, row.status, row.reason) == (answer.json()["id"], "skipped", "opted_out")
    assert site.meta.requests == []
    await check_counters(site.engine, await site.campaign())


async def test_an_opt_out_that_meta_tells_holds_for_the_next(site: Site) -> None:
    site.meta.answer = lambda _: refuse(131050)

    assert (await site.say()).status_code == 422
    assert (await site.say()).json()["reason"] == "opted_out"


async def test_staging_sends_live_messages_to_nobody_else(
    engine: AsyncEngine, redis: Redis
) -> None:
    meta, allowed = Meta(), {"allowed_recipients": ("49", "12025550101")}
    settings = SETTINGS.model_copy(update=allowed)
    async with running(engine, redis, httpx.MockTransport(meta.handle), meta, settings) as site:
        answers = [
            await site.say(HELLO | {"to": to})
            for to in (PERSON, "+12025550101", "+4915112000001", "+12025550102")
        ]

        assert [one.status_code for one in answers] == [409, 200, 200, 409]
        assert answers[0].json()["reason"] == "not_allowed"
        assert [row.status for row in await rows(engine, await site.campaign())] == [
            *("skipped", "accepted", "accepted", "skipped")
        ]
        assert sorted(meta.times_sent) == ["+12025550101", "+4915112000001"]


async def test_no_permit_in_time_is_429_and_the_end_of_it(site: Site, redis: Redis) -> None:
    await Bucket(redis, NUMBER).pause(100)

    answer = await site.say(HELLO | {"max_wait_ms": 500})

    assert answer.status_code == 429
    assert 95 < int(answer.headers["retry-after"]) <= 100
    row = await one_row(site.engine, await site.campaign())
    assert (row.status, row.reason, row.concluded) == ("failed", "no_permit", True)
    assert site.meta.requests == []
    await check_counters(site.engine, await site.campaign())


async def test_a_short_pause_is_waited_for(site: Site, redis: Redis) -> None:
    await Bucket(redis, NUMBER).pause(0.3)

    assert (await site.say(HELLO | {"max_wait_ms": 5000})).status_code == 200


async def test_a_halt_stops_what_waits_for_its_permit(site: Site, redis: Redis) -> None:
    await Bucket(redis, NUMBER).pause(1)
    asking = asyncio.create_task(site.say(HELLO | {"max_wait_ms": 5000}))
    await until(lambda: claimed(site.engine))

    await site.api.post("/v1/halt")
    answer = await asking

    assert (answer.status_code, answer.json()["reason"]) == (409, "halted")
    row = await one_row(site.engine, await site.campaign())
    assert (row.status, row.reason) == ("failed", "halted")
    assert site.meta.requests == []


async def claimed(engine: AsyncEngine) -> int:
    async with engine.connect() as connection:
        count = "SELECT count(*) FROM messages WHERE status = 'claimed'"
        return int((await connection.exec_driver_sql(count)).scalar_one())


async def test_without_redis_nothing_leaves(engine: AsyncEngine, redis: Redis, free_port) -> None:
    assert redis
    meta, away = Meta(), create_redis(f"redis://127.0.0.1:{free_port()}")
    async with running(engine, away, httpx.MockTransport(meta.handle), meta) as site:
        answer = await site.say()

        assert answer.status_code == 503
        row = await one_row(engine, await site.campaign())
        assert (row.status, row.reason) == ("failed", "no_permits")
        assert meta.requests == []
    await away.aclose()


async def test_a_key_sends_once_and_answers_the_same(site: Site) -> None:
    first = await site.say(**{"Idempotency-Key": "k"})
    again = await site.say(**{"Idempotency-Key": "k"})
    other = await site.say(HELLO | {"to": "+12025550143"}, **{"Idempotency-Key": "k"})

    assert (again.status_code, again.json()) == (200, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert other.status_code == 422
    assert len(site.meta.requests) == 1


async def test_a_key_whose_message_was_not_sent_may_be_used_again(site: Site, redis: Redis) -> None:
    bucket, key = Bucket(redis, NUMBER), {"Idempotency-Key": "k"}
    await bucket.pause(100)
    assert (await site.say(HELLO | {"max_wait_ms": 0}, **key)).status_code == 429
    await redis.flushall()

    assert (await site.say(HELLO | {"max_wait_ms": 0}, **key)).status_code == 200


async def test_a_second_request_with_the_key_does_not_send_beside_the_first(site: Site) -> None:
    site.meta.answer = never
    first = asyncio.create_task(site.say(**{"Idempotency-Key": "k"}))
    await until(lambda: site.meta.on_the_wire)

    second = await site.say(**{"Idempotency-Key": "k"})

    assert (second.status_code, second.headers["retry-after"]) == (409, "1")
    assert len(site.meta.requests) == 1
    await site.live.drain(0)
    told = (await first).json()
    assert (told["status"], told["reason"]) == ("unknown", "cancelled")
    assert (await site.say(**{"Idempotency-Key": "k"})).json() == told


async def test_what_a_dead_process_held_is_unknown_to_its_key_too(site: Site) -> None:
    """The row and the key's answer are committed, and then there is nobody to send."""
    site.meta.answer = never
    asking = asyncio.create_task(site.say(**{"Idempotency-Key": "k"}))
    await until(lambda: site.meta.on_the_wire)

    assert await reclaim(site.engine, 0) == 1

    row = await one_row(site.engine, await site.campaign())
    assert (row.status, row.reason) == ("unknown", "lease_expired")
    again = await site.say(**{"Idempotency-Key": "k"})
    assert (again.status_code, again.json()["status"]) == (202, "unknown")
    assert len(site.meta.requests) == 1
    await site.live.drain(0)
    await asking


async def test_it_goes_on_when_its_caller_goes_away(site: Site) -> None:
    reply = asyncio.Event()

    async def slow(body: dict[str, Any]) -> httpx.Response:
        await reply.wait()
        return httpx.Response(200, json={"messages": [{"id": f"wamid.{body['to']}"}]})

    site.meta.answer = slow
    async with site.engine.begin() as connection:
        written = await site.live.write(connection, NUMBER, MESSAGE)
    waiting = asyncio.create_task(site.live.send(written, nothing))
    await until(lambda: site.meta.on_the_wire)
    waiting.cancel()
    await asyncio.wait([waiting])
    reply.set()

    row = await until(lambda: one_row_of(site), is_right=lambda row: row.status == "accepted")
    assert row.wamid == f"wamid.{PERSON}"


async def nothing(*_: object) -> None:
    """No key came with it."""


async def one_row_of(site: Site) -> Any:
    return await one_row(site.engine, await site.campaign())


async def test_a_stopping_process_takes_none(site: Site) -> None:
    site.live.stop()

    answer = await site.say()

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert site.meta.requests == []


async def test_an_end_that_cannot_be_written_now_is_written_later(site: Site) -> None:
    async def fail(*_: object) -> None:
        raise TimeoutError

    async with site.engine.begin() as connection:
        written = await site.live.write(connection, NUMBER, MESSAGE)
    end = await site.live.send(written, fail)

    assert isinstance(end.outcome, Accepted)
    await asyncio.wait_for(site.recorder.flush(), 10)
    row = await one_row(site.engine, await site.campaign())
    assert (row.status, row.wamid) == ("accepted", end.outcome.wamid)
    await check_counters(site.engine, await site.campaign())


async def test_an_end_that_is_cut_off_while_it_is_written_is_not_lost(site: Site) -> None:
    writing = asyncio.Event()

    async def hang(*_: object) -> None:
        writing.set()
        await asyncio.Event().wait()

    async with site.engine.begin() as connection:
        written = await site.live.write(connection, NUMBER, MESSAGE)
    sending = asyncio.create_task(site.live.send(written, hang))
    await writing.wait()

    assert await site.live.drain(0) == 1

    await asyncio.wait([sending])
    await asyncio.wait_for(site.recorder.flush(), 10)
    assert (await one_row_of(site)).status == "accepted"
    await check_counters(site.engine, await site.campaign())


async def test_what_stood_still_for_half_the_lease_is_not_sent(
    engine: AsyncEngine, redis: Redis
) -> None:
    meta = Meta()
    settings = SETTINGS.model_copy(update={"lease_s": 0.0})
    async with running(engine, redis, httpx.MockTransport(meta.handle), meta, settings) as site:
        answer = await site.say()

        assert (answer.status_code, answer.json()["reason"]) == (503, "stale")
        assert meta.requests == []


async def test_no_claim_takes_a_live_message(site: Site) -> None:
    site.meta.answer = html_502
    await site.say()

    assert (await claim_all(site.engine, await site.campaign())).messages == []


async def test_two_first_messages_at_once_share_one_hidden_campaign(site: Site) -> None:
    async with site.engine.begin() as one, site.engine.begin() as two:
        first = await site.live.write(one, NUMBER, MESSAGE)
        second = asyncio.create_task(site.live.write(two, NUMBER, MESSAGE))
        done, _ = await asyncio.wait([second], timeout=0.1)
        assert not done
        await one.commit()
        other = await second

    assert first.row.campaign_id == other.row.campaign_id == await site.campaign()


async def test_nothing_of_what_was_said_is_kept(site: Site) -> None:
    secret = "the-words-of-a-conversation"
    await site.say({"to": PERSON, "text": {"body": secret}}, **{"Idempotency-Key": "k"})

    async with site.engine.connect() as connection:
        for table in ("live_messages", "messages", "campaigns", "idempotency_keys", "attempts"):
            found = await connection.exec_driver_sql(f"SELECT to_jsonb(t)::text FROM {table} t")
            assert secret not in json.dumps(list(found.scalars()))
