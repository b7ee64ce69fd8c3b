"""Sends over real sockets: Meta's answers, the unclear ones too, and what the ledger says."""

import asyncio
import json
import time
from typing import Any

import aiohttp
import pytest
from running import Processes
from simulated import NUMBER, PERSON, TOKEN, Simulated, simulator
from waiting import until

APP = "services.simulator.app:create_app"


def blur(kind: str, **how: Any) -> dict[str, Any]:
    return {"ambiguous": [{"kind": kind, "share": 1, **how}]}


async def test_a_send_is_accepted_and_in_the_ledger() -> None:
    async with simulator() as sim:
        before = time.time()
        reply = await sim.send()
        (line,) = await sim.ledger()
    told = json.loads(reply.body)
    assert (reply.status, reply.content_type) == (200, "application/json")
    assert told["contacts"] == [{"input": PERSON, "wa_id": "12025550142"}]
    assert told["messages"] == [{"id": line["wamid"], "message_status": "accepted"}]
    assert before <= line.pop("at") <= time.time()
    assert line == {
        "wamid": line["wamid"],
        "phone_number_id": NUMBER,
        "to": PERSON,
        "token": TOKEN,
        "answer": "200",
        "withheld": False,
        "acknowledged": [],
        "failed_reported": None,
    }


async def test_marketing_messages_is_a_send_too() -> None:
    async with simulator() as sim:
        assert (await sim.send(edge="marketing_messages")).status == 200
        assert len(await sim.ledger()) == 1


async def test_a_send_without_a_token_gets_401() -> None:
    async with simulator() as sim:
        reply = await sim.send(bearer=None)
        assert (reply.status, reply.error["code"]) == (401, 104)
        assert (await sim.stats())["refused"] == {"104": 1}


async def test_only_the_right_token_passes_where_one_is_set() -> None:
    async with simulator(sim_access_token="right") as sim:
        reply = await sim.send(bearer="Bearer wrong")
        assert (reply.status, reply.error["code"]) == (401, 190)
        assert (await sim.send(bearer="Bearer right")).status == 200
        assert len(await sim.ledger()) == 1


@pytest.mark.parametrize("content", [b"{", b"x" * (1 << 20) + b"x"], ids=["broken", "too large"])
async def test_a_bad_body_is_code_100(content: bytes) -> None:
    async with simulator() as sim:
        reply = await sim.post(content)
        assert (reply.status, reply.error["code"]) == (400, 100)
        assert reply.error["error_data"]["messaging_product"] == "whatsapp"
        assert await sim.ledger() == []


async def test_a_numbers_throughput_holds_under_a_burst() -> None:
    async with simulator() as sim:
        await sim.play(throughput=5)
        replies = await asyncio.gather(*(sim.send(f"+1202555{n:04d}") for n in range(20)))
        stats = await sim.stats()
    refused = [reply.error["code"] for reply in replies if reply.status == 400]
    assert refused == [130429] * 15
    assert (stats["accepted"], stats["refused"]) == (5, {"130429": 15})
    assert stats["most_accepted_in_one_second"] == {NUMBER: 5}
    assert stats["max_requests_in_one_second"] == {NUMBER: 20}


async def test_an_error_is_metas_and_the_retry_goes_through() -> None:
    async with simulator() as sim:
        await sim.play(errors=[{"code": 131056, "share": 1}])
        reply = await sim.send()
        assert reply.status == 400
        assert reply.error["message"] == "(#131056) Pair rate limit hit"
        assert reply.error["type"] == "OAuthException"
        assert (await sim.send()).status == 200


@pytest.mark.parametrize(
    ("kind", "status", "content_type", "start"),
    [
        ("html_502", 502, "text/html", b"<!DOCTYPE html>"),
        ("empty_200", 200, "application/json", b""),
        ("garbage_200", 200, "application/json", b'{"messaging_product"'),
    ],
)
@pytest.mark.parametrize("accepted", [True, False])
async def test_an_unclear_reply_tells_nothing_and_the_ledger_all(
    kind: str, status: int, content_type: str, start: bytes, *, accepted: bool
) -> None:
    async with simulator() as sim:
        await sim.play(**blur(kind, accepted=accepted))
        reply = await sim.send()
        ledger, (unclear,) = await sim.ledger(), await sim.unclear()
        stats = await sim.stats()
    assert (reply.status, reply.content_type) == (status, content_type)
    assert reply.body.startswith(start)
    assert b"wamid" not in reply.body
    assert [line["answer"] for line in ledger] == [kind] * accepted
    assert (unclear["kind"], unclear["to"], unclear["token"]) == (kind, PERSON, TOKEN)
    assert (unclear["accepted"], unclear["withheld"]) == (accepted, not accepted)
    assert stats["answers"] == {kind: 1}


async def test_a_reset_is_an_rst_without_an_answer() -> None:
    async with simulator() as sim:
        await sim.play(**blur("reset"))
        host, port = sim.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps(
            {"messaging_product": "whatsapp", "to": PERSON, "type": "text", "text": {"body": "x"}}
        )
        head = f"POST /v25.0/{NUMBER}/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer x\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 5)
        writer.close()
        assert [line["answer"] for line in await sim.ledger()] == ["reset"]


async def test_a_stall_never_answers() -> None:
    async with simulator() as sim:
        await sim.play(**blur("stall", withhold=1))
        with pytest.raises(TimeoutError):
            await sim.send(seconds=0.3)
        (line,) = await sim.ledger()
        assert (line["answer"], line["withheld"]) == ("stall", True)


async def test_a_bounded_stall_answers_late() -> None:
    async with simulator() as sim:
        await sim.play(**blur("stall", stall_s=0.3))
        start = time.monotonic()
        reply = await sim.send()
        assert time.monotonic() - start >= 0.3
        (line,) = await sim.ledger()
        assert json.loads(reply.body)["messages"][0]["id"] == line["wamid"]


async def test_replies_take_their_time() -> None:
    async with simulator() as sim:
        await sim.play(latency={"median_ms": 120, "sigma": 0})
        start = time.monotonic()
        await asyncio.gather(*(sim.send(f"+1202555{n:04d}") for n in range(20)))
        assert 0.12 <= time.monotonic() - start < 2


async def test_a_scenario_is_shown_refused_and_kept_apart_from_the_ledger() -> None:
    async with simulator() as sim:
        await sim.send()
        await sim.play(seed=9, throughput=80)
        async with sim.http.get("/_sim/scenario") as reply:
            shown = await reply.json()
        async with sim.http.put("/_sim/scenario", json={"sneed": 1}) as reply:
            assert reply.status == 422
        assert (shown["seed"], shown["throughput"]) == (9, 80)
        assert len(await sim.ledger()) == 1


async def test_a_new_scenario_starts_limits_and_chance_anew() -> None:
    async with simulator() as sim:
        scenario = {"throughput": 2, "errors": [{"code": 131000, "share": 1}]}
        for _ in range(2):
            await sim.play(**scenario)
            codes = [(await sim.send()).status for _ in range(3)]
            assert codes == [500, 200, 400]


async def test_clearing_forgets_ledger_and_counts() -> None:
    async with simulator() as sim:
        await sim.play(**blur("html_502"))
        await sim.send()
        async with sim.http.delete("/_sim/ledger") as reply:
            assert reply.status == 204
        assert (await sim.ledger(), await sim.unclear()) == ([], [])
        stats = await sim.stats()
        assert (stats["accepted"], stats["answers"]) == (0, {})
        assert stats["most_accepted_in_one_second"] == {}


async def test_as_a_process_it_breaks_off_stalls_and_ends_on_sigterm(processes: Processes) -> None:
    """On the loop of production, with a stall under way and webhooks that wait."""
    url = "http://127.0.0.1:9/nobody"
    env = {"HEADRACE_APP_SECRETS": "s", "HEADRACE_SIM_WEBHOOK_URL": url}
    process = await processes.start("simulator", APP, env)
    async with aiohttp.ClientSession(process.url) as http:
        sim = Simulated(process.url, http)
        await sim.play(**blur("reset"))
        with pytest.raises(aiohttp.ClientConnectionError):
            await sim.send()
        await sim.play(**blur("stall", times_per_recipient=2))
        with pytest.raises(TimeoutError):
            await sim.send(seconds=0.3)
        stalled = asyncio.create_task(sim.send(seconds=30))
        await sim.become(lambda told: told["outstanding"])
        start = time.monotonic()
        status = await asyncio.to_thread(process.stop, 20)
        assert time.monotonic() - start < 5
        assert status in {0, -15}
        with pytest.raises(aiohttp.ClientError):
            await stalled
    assert "Traceback" not in process.last_lines(200)
    assert "ERROR" not in process.last_lines(200)


async def test_without_a_secret_it_does_not_start(processes: Processes) -> None:
    process = await processes.start("simulator", APP, {}, ready=False)
    assert await until(process.poll, is_right=lambda status: status is not None) != 0
    (line,) = [line for line in process.last_lines().splitlines() if line.strip()]
    assert line.startswith("HEADRACE_APP_SECRETS: is missing")
