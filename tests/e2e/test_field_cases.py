"""What people met in the field with pause and resume, each under its id, through two senders."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import httpx
from launching import Launch
from test_campaign import QUICK, at_least, ended, second_sender, shortest_span
from waiting import still, until

from services.cli.comparison import Comparison
from services.cli.stack import Stack
from services.cli.trial import Trial

RATE = 200
# Ten are on the wire at any time.
CALM = {"latency": {"median_ms": 50, "sigma": 0}, "webhooks": QUICK}
# What may still leave when the pause has been answered: the word is under way to the processes.
ON_THE_WIRE = 10
WATCHED_SECONDS = 1.5
JITTER_SECONDS = 0.03


class Buttons:
    """The lifecycle commands of one campaign, given to one sender process after the other."""

    def __init__(self, clients: list[httpx.AsyncClient], path: str) -> None:
        self._clients = clients
        self._path = path
        self._given = 0

    async def press(self, command: str) -> httpx.Response:
        self._given += 1
        client = self._clients[self._given % len(self._clients)]
        return await client.post(f"{self._path}/{command}")

    async def state(self) -> str:
        return str((await self._clients[0].get(self._path)).json()["state"])

    async def events(self) -> list[str]:
        found = (await self._clients[0].get(f"{self._path}/events?limit=100")).json()["data"]
        return [event["kind"] for event in found]


def none_claimed(counts: Mapping[str, int]) -> bool:
    return "claimed" not in counts


@asynccontextmanager
async def buttons(stack: Stack, trial: Trial, *urls: str) -> AsyncGenerator[Buttons]:
    headers = {"Authorization": f"Bearer {stack.secrets.admin_key}"}
    clients = [
        httpx.AsyncClient(base_url=url, headers=headers, timeout=30, trust_env=False)
        for url in urls
    ]
    try:
        yield Buttons(clients, f"/v1/campaigns/{trial.campaign}")
    finally:
        await asyncio.gather(*(client.aclose() for client in clients))


async def test_pc_01_a_pause_acts_at_once_and_what_was_fetched_is_sent_later(
    stack: Stack, launch: Launch
) -> None:
    first = await second_sender(stack)
    trial = await launch(1000, RATE, CALM)
    await until(at_least(trial, 100), 20)
    await trial.rest.post(f"/v1/campaigns/{trial.campaign}/pause")
    answered = time.time()

    async def counts() -> dict[str, int]:
        return {name: count for name, count in (await trial.look())["counts"].items() if count}

    await until(counts, is_right=none_claimed)

    async def left() -> int:
        return len(await trial.meta.ledger())

    sent = await still(left, WATCHED_SECONDS)
    late = [item for item in await trial.meta.ledger() if item.at > answered]
    assert len(late) <= ON_THE_WIRE
    seen = await counts()
    assert (seen["pending"], seen["total"]) == (1000 - sent, 1000)
    assert "unknown" not in seen

    await trial.rest.post(f"/v1/campaigns/{trial.campaign}/resume")
    outcome = await ended(trial)
    assert outcome.comparison == Comparison()
    assert len(outcome.ledger) == 1000
    await asyncio.to_thread(first.stop)


async def test_pc_03_the_last_command_that_was_accepted_holds(stack: Stack, launch: Launch) -> None:
    first = await second_sender(stack)
    trial = await launch(1000, RATE, CALM)
    async with buttons(stack, trial, stack.sender.url, first.url) as campaign:
        await until(at_least(trial, 50), 20)
        assert (await campaign.press("pause")).status_code == 200
        clicks = await asyncio.gather(campaign.press("resume"), campaign.press("resume"))
        one, other = sorted(clicks, key=lambda answer: answer.status_code)
        assert (one.status_code, other.status_code) == (200, 409)
        assert "is running" in other.json()["detail"]

        for command in ("pause", "resume", "pause", "resume"):
            assert (await campaign.press(command)).status_code == 200
        assert await campaign.state() == "running"

        storm = await asyncio.gather(*map(campaign.press, ["pause", "resume"] * 10))
        told = await campaign.events()
        moves = [kind for kind in told if kind in {"paused", "resumed"}]
        assert moves == ["paused", "resumed"] * (len(moves) // 2) + ["paused"] * (len(moves) % 2)
        assert len(moves) == 6 + sum(answer.status_code == 200 for answer in storm)
        assert {answer.status_code for answer in storm} <= {200, 409}
        assert await campaign.state() == {"paused": "paused", "resumed": "running"}[moves[-1]]

        if await campaign.state() == "paused":
            assert (await campaign.press("resume")).status_code == 200
        outcome = await ended(trial)
        await until(campaign.state, 30, is_right="completed".__eq__)
        for command in ("start", "pause", "resume", "cancel"):
            answer = await campaign.press(command)
            assert answer.status_code == 409
            assert "is completed" in answer.json()["detail"]
    assert outcome.comparison == Comparison()
    # A second send loop would have sent as much again in the same time.
    assert shortest_span(outcome.ledger, RATE + 1) > 1 - JITTER_SECONDS
    await asyncio.to_thread(first.stop)
