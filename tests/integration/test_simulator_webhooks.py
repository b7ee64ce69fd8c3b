"""Webhooks over real sockets: signed, late, twice, swapped, lost, batched, and until a 200."""

import asyncio
import hashlib
import hmac
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from simulated import NUMBER, PERSON, SECRET, TOKEN, raw_target, simulator, target

QUICK = {"delay_s": {"sent": 0.01, "delivered": 0.02, "read": 0.02}, "jitter": 0, "read_share": 1}
SOON = {"redelivery": {"first_s": 0.1, "cap_s": 0.4}}


def hooks(url: str, **how: Any) -> dict[str, Any]:
    return {"url": url, **QUICK, **SOON, **how}


async def test_statuses_come_signed_in_order_and_are_acknowledged() -> None:
    async with target() as there, simulator(sim_webhook_url=there.url, sim_waba_id="73") as sim:
        await sim.play(webhooks=QUICK)
        await sim.send()
        await there.wait_for(3)
        await sim.settled()
        (line,) = await sim.ledger()
        told = await sim.webhooks()
    assert there.seen() == ["sent", "delivered", "read"]
    assert set(there.seen("id")) == {line["wamid"]}
    assert set(there.seen("biz_opaque_callback_data")) == {TOKEN}
    assert all(abs(int(at) - time.time()) < 30 for at in there.seen("timestamp"))
    for arrival in there.arrivals:
        digest = hmac.new(SECRET.encode(), arrival.body, hashlib.sha256).hexdigest()
        assert arrival.signature == f"sha256={digest}"
        assert arrival.value["metadata"]["phone_number_id"] == NUMBER
        assert b'"object":"whatsapp_business_account","entry":[{"id":"73"' in arrival.body
    assert line["acknowledged"] == ["sent", "delivered", "read"]
    assert told == {"outstanding": 0, "posted": 3, "acknowledged": 3, "lost": 0, "repeated": 0}


async def test_a_webhook_is_posted_until_it_gets_a_200() -> None:
    async with target() as there, simulator() as sim:
        there.answers = [500, 404, 503, 204]
        failed = [{"code": 131026, "share": 1}]
        await sim.play(webhooks=hooks(there.url, failed=failed))
        await sim.send()
        await there.wait_for(3)
        (line,) = await sim.ledger()
        assert line["acknowledged"] == []
        assert (await sim.webhooks())["outstanding"] == 1
        await there.wait_for(5)
        await sim.settled()
        (line,) = await sim.ledger()
    assert line["acknowledged"] == ["failed"]
    assert len({arrival.body for arrival in there.arrivals}) == 1
    gaps = [later.at - earlier.at for earlier, later in pairwise(there.arrivals)]
    assert [gap >= least for gap, least in zip(gaps, (0.1, 0.2, 0.4, 0.4), strict=True)] == (
        [True] * 4
    )
    assert gaps[-1] < 2


async def test_a_target_that_is_away_gets_everything_later(free_port: Callable[[], int]) -> None:
    port = free_port()
    async with simulator() as sim:
        await sim.play(webhooks=hooks(f"http://127.0.0.1:{port}/webhooks/whatsapp"))
        await asyncio.gather(*(sim.send(f"+1202555{n:04d}") for n in range(10)))
        await sim.become(lambda told: told["posted"] >= 3)
        async with target(port) as there:
            await there.wait_for(30)
            await sim.settled()
            assert Counter(there.seen()) == {"sent": 10, "delivered": 10, "read": 10}


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n"], ids=["silence", "nonsense"])
async def test_what_is_no_answer_is_no_200(answer: bytes) -> None:
    async with raw_target(lambda: answer) as url, simulator() as sim:
        await sim.play(webhooks=hooks(url, timeout_s=0.2))
        await sim.send()
        told = await sim.become(lambda told: told["posted"] >= 5)
        assert (told["outstanding"], told["acknowledged"]) == (3, 0)


async def test_a_target_may_close_after_each_answer() -> None:
    async with target() as there, simulator() as sim:
        there.close = True
        await sim.play(webhooks=hooks(there.url, connections=1))
        await asyncio.gather(*(sim.send(f"+1202555{n:04d}") for n in range(5)))
        await there.wait_for(15)
        await sim.settled()
        assert len(there.seen()) == 15


async def test_lost_statuses_are_never_posted() -> None:
    async with target() as there, simulator() as sim:
        await sim.play(webhooks=hooks(there.url, lost_share=1))
        await sim.send()
        told = await sim.webhooks()
        (line,) = await sim.ledger()
        assert (told["lost"], told["outstanding"]) == (3, 0)
        assert (line["acknowledged"], there.arrivals) == ([], [])


async def test_repeated_statuses_come_twice() -> None:
    async with target() as there, simulator() as sim:
        await sim.play(webhooks=hooks(there.url, repeated_share=1))
        await sim.send()
        await there.wait_for(6)
        await sim.settled()
        assert Counter(there.seen()) == {"sent": 2, "delivered": 2, "read": 2}
        assert (await sim.webhooks())["repeated"] == 3


async def test_reordered_statuses_come_latest_first() -> None:
    async with target() as there, simulator() as sim:
        await sim.play(webhooks=hooks(there.url, reorder_share=1))
        await sim.send()
        await there.wait_for(3)
        assert there.seen() == ["read", "delivered", "sent"]


async def test_an_early_status_comes_before_its_own_reply() -> None:
    async with target() as there, simulator() as sim:
        await sim.play(webhooks=hooks(there.url, early_share=1), latency={"median_ms": 50})
        await sim.send()
        replied = time.monotonic()
        assert there.seen()[:1] == ["sent"]
        assert there.arrivals[0].at < replied
        (line,) = await sim.ledger()
        assert "sent" in line["acknowledged"]


async def test_due_statuses_share_posts_up_to_the_batch() -> None:
    async with target() as there, simulator() as sim:
        await sim.play(webhooks=hooks(there.url, batch=8, window_ms=200))
        await asyncio.gather(*(sim.send(f"+1202555{n:04d}") for n in range(20)))
        await there.wait_for(60)
        await sim.settled()
        sizes = [len(arrival.statuses) for arrival in there.arrivals]
        assert sum(sizes) == 60
        assert max(sizes) == 8
        assert len(sizes) <= 12


async def test_a_batch_holds_one_number() -> None:
    async with target() as there, simulator() as sim:
        await sim.play(webhooks=hooks(there.url, batch=100, window_ms=200))
        await asyncio.gather(*(sim.send(number=number) for number in ("1", "2") * 5))
        await there.wait_for(30)
        for arrival in there.arrivals:
            number = arrival.value["metadata"]["phone_number_id"]
            ids = {status["id"] for status in arrival.statuses}
            own = [line for line in await sim.ledger() if line["phone_number_id"] == number]
            assert ids <= {line["wamid"] for line in own}


async def test_a_failure_is_reported_without_a_token_if_so_asked() -> None:
    async with target() as there, simulator() as sim:
        failed = [{"code": 131026, "share": 1, "after_sent": True}]
        await sim.play(webhooks=hooks(there.url, failed=failed, omit_token_on_failed=True))
        await sim.send()
        await there.wait_for(2)
        await sim.settled()
        (line,) = await sim.ledger()
    assert there.seen() == ["sent", "failed"]
    assert there.seen("biz_opaque_callback_data") == [TOKEN, None]
    (error,) = there.seen("errors")[1]
    assert (error["code"], error["title"]) == (131026, "Message undeliverable")
    assert (line["failed_reported"], line["acknowledged"]) == (131026, ["sent", "failed"])


async def test_what_is_withheld_stays_silent_and_the_rest_gives_proof() -> None:
    """Also where every status would be lost: the sender has nothing else to go by."""
    people = [f"+1202555{n:04d}" for n in range(60)]
    async with target() as there, simulator() as sim:
        ambiguous = [{"kind": "empty_200", "share": 1, "withhold": 0.5}]
        await sim.play(ambiguous=ambiguous, webhooks=hooks(there.url, lost_share=1))
        await asyncio.gather(*(sim.send(to, token=to) for to in people))
        await sim.settled()
        unclear, ledger = await sim.unclear(), await sim.ledger()
    silent = {line["token"] for line in unclear if line["withheld"]}
    assert 10 < len(silent) < 50
    assert Counter(there.seen("biz_opaque_callback_data")) == Counter(set(people) - silent)
    assert {line["token"] for line in ledger if line["withheld"]} == silent
    assert {line["token"] for line in ledger if not line["acknowledged"]} == silent


async def test_clearing_drops_the_statuses_that_are_still_to_come() -> None:
    async with target() as there, simulator() as sim:
        later = {"delay_s": {"sent": 0.3}, "jitter": 0}
        await sim.play(webhooks={"url": there.url, **later})
        await sim.send(token="dropped")
        async with sim.http.delete("/_sim/ledger"):
            pass
        assert (await sim.webhooks())["outstanding"] == 0
        await sim.send(PERSON, token="kept")
        await there.wait_for(2)
        assert set(there.seen("biz_opaque_callback_data")) == {"kept"}


async def test_a_new_scenario_keeps_what_waits() -> None:
    async with target() as there, simulator() as sim:
        await sim.play(webhooks={"url": "http://127.0.0.1:9/nobody", **QUICK, **SOON})
        await sim.send()
        await sim.become(lambda told: told["posted"])
        await sim.play(webhooks=hooks(there.url))
        await there.wait_for(3)
        await sim.settled()
        assert set(there.seen()) == {"sent", "delivered", "read"}
