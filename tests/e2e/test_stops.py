"""Three senders stopped: by a signal, one after the other, by a pause, by the red button."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from launching import Launch
from test_campaign import QUICK, at_least, ended, ids_in, ids_of
from waiting import still, until

from services.cli.audience_file import write_audience
from services.cli.comparison import Comparison
from services.cli.processes import ServiceProcess
from services.cli.stack import Stack
from services.cli.trial import Trial, open_trial
from shared.domain.status import Status

# Six processes start slowly on a busy machine.
pytestmark = pytest.mark.timeout(300)
RATE, SLOW_RATE = 300, 100
CALM = {"latency": {"median_ms": 100, "sigma": 0.3}, "webhooks": QUICK}
# What orchestrators give a process after SIGTERM is half a minute.
DRAIN_SECONDS = 29.0
LAST_WITHIN_SECONDS = 1.0
WATCHED_SECONDS = 1.5


class Senders:
    """Three of them; the first one answers the test's questions."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._others = [stack.start_sender(wait=False), stack.start_sender(wait=False)]
        for one in self._others:
            one.wait_ready()

    @property
    def all(self) -> list[ServiceProcess]:
        return [self._stack.sender, *self._others]

    async def stop(self, *places: int) -> float:
        """By SIGTERM, all at once; returns the seconds that it took."""
        began, stopped = time.monotonic(), [self.all[place] for place in places]
        codes = await asyncio.gather(*(asyncio.to_thread(one.stop) for one in stopped))
        assert -9 not in codes
        for one in stopped:
            assert told(one, "workers_drained") == {"cut_off": 0}
            assert told(one, "results_flushed") == {"unwritten": 0}
        return time.monotonic() - began

    def kill(self, *places: int) -> None:
        for place in places:
            self.all[place].kill()

    async def start(self, *places: int) -> None:
        """Where they were before."""
        for place in places:
            again = self._stack.start_sender(self.all[place].port, wait=False)
            if place:
                self._others[place - 1] = again
            else:
                self._stack.sender = again
        await asyncio.gather(*(asyncio.to_thread(self.all[one].wait_ready) for one in places))

    def close(self) -> None:
        for one in self._others:
            one.stop()


@pytest.fixture(scope="module")
def senders(stack: Stack) -> Generator[Senders]:
    made = Senders(stack)
    yield made
    made.close()


def told(process: ServiceProcess, event: str) -> dict[str, int]:
    """The numbers of the last line with this event."""
    lines = [json.loads(line) for line in process.log.read_text().splitlines() if line[:1] == "{"]
    found = [line for line in lines if line["event"] == event][-1]
    return {name: value for name, value in found.items() if isinstance(value, int)}


def left(trial: Trial) -> Callable[[], Awaitable[int]]:
    async def look() -> int:
        return len(await trial.meta.ledger())

    return look


def pace(times: Sequence[float], begin: float, end: float) -> float:
    return sum(begin <= at < end for at in times) / (end - begin)


async def last_after(trial: Trial, moment: float) -> float:
    """Seconds after the moment at which the last message arrived, once nothing more comes."""
    await until(lambda: ids_in(trial, Status.CLAIMED), 20, is_right=set().__eq__)
    await still(left(trial), WATCHED_SECONDS)
    return max(item.at for item in await trial.meta.ledger()) - moment


async def test_a_signal_drains_within_its_bound_and_leaves_nothing_claimed(
    senders: Senders, launch: Launch
) -> None:
    trial = await launch(1500, RATE, CALM)
    await until(at_least(trial, 300), 30)
    assert await senders.stop(0, 1, 2) < DRAIN_SECONDS
    rows = await trial.books.rows(trial.campaign)
    assert not {row.id for row in rows if row.status in {Status.CLAIMED, Status.UNKNOWN}}
    assert [row for row in rows if row.status is Status.PENDING], "it was over: it proves nothing"
    await senders.start(0, 1, 2)
    outcome = await ended(trial)
    assert outcome.comparison == Comparison()
    assert not ids_of(outcome, Status.UNKNOWN)


@pytest.mark.soak
async def test_a_rolling_restart_loses_and_doubles_nothing(
    senders: Senders, launch: Launch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Longer than the slowest restart; what is left then is cancelled.
    trial = await launch(12_000, SLOW_RATE, CALM)
    await until(at_least(trial, 500), 60)
    began = time.time()
    for place in range(3):
        await senders.stop(place)
        await senders.start(place)
    ended_at = time.time()
    times = [item.at for item in await trial.meta.ledger()]
    before = pace(times, min(times), began)
    # A busy machine keeps no pace at all: reported, not judged.
    with capsys.disabled():
        sys.stdout.write(f"\n{pace(times, began, ended_at) / before:.0%} of the pace before\n")
    assert await ids_in(trial, Status.PENDING), "it was over: it proves nothing"
    await trial.rest.post(f"/v1/campaigns/{trial.campaign}/cancel")
    outcome = await ended(trial)
    assert outcome.comparison == Comparison()
    assert not ids_of(outcome, Status.UNKNOWN)


@pytest.mark.usefixtures("senders")
async def test_the_last_message_leaves_within_a_second_of_a_pause(launch: Launch) -> None:
    trial = await launch(3000, RATE, CALM)
    await until(at_least(trial, 300), 30)
    path = f"/v1/campaigns/{trial.campaign}"
    await trial.rest.post(f"{path}/pause")
    assert await last_after(trial, time.time()) < LAST_WITHIN_SECONDS
    await trial.rest.post(f"{path}/cancel")


async def test_the_red_button_stops_everything_without_redis_and_after_a_restart(
    stack: Stack, senders: Senders, launch: Launch
) -> None:
    trial = await launch(1200, RATE, CALM)
    await until(at_least(trial, 200), 30)
    try:
        await trial.rest.post("/v1/halt")
        assert await last_after(trial, time.time()) < LAST_WITHIN_SECONDS

        await senders.stop(0, 1, 2)
        await senders.start(0, 1, 2)
        await still(left(trial), WATCHED_SECONDS)

        sent = await left(trial)()
        await trial.rest.post("/v1/unhalt")
        await until(left(trial), 30, is_right=lambda now: now > sent + 100)
        stack.servers.kill_valkey()
        await trial.rest.post("/v1/halt")
        stack.servers.start_valkey()
        await last_after(trial, time.time())
    finally:
        await trial.rest.post("/v1/unhalt")
    outcome = await ended(trial)
    assert outcome.comparison == Comparison()
    assert not ids_of(outcome, Status.UNKNOWN)


async def test_a_start_happens_once_and_in_time_with_two_of_three_senders_killed(
    stack: Stack, senders: Senders, numbers: Iterator[str], tmp_path: Path
) -> None:
    number = next(numbers)
    audience = write_audience(tmp_path / "people.csv", 100, int(number))
    async with open_trial(stack, number, RATE, "Later") as trial:
        path = f"/v1/campaigns/{trial.campaign}"
        await trial.meta.play({**CALM, "webhooks": {**QUICK, "url": stack.webhook_url}})
        await trial.upload(audience.path)
        at = datetime.now(UTC) + timedelta(seconds=3)
        await trial.rest.post(f"{path}/start", {"at": at.isoformat()})
        senders.kill(1, 2)
        await until(at_least(trial, 1), 30)
        told = (await trial.rest.get(f"{path}/events"))["data"]
        outcome = await ended(trial)
    (started,) = (event for event in told if event["kind"] == "started")
    late = datetime.fromisoformat(started["at"]) - at
    assert timedelta(0) <= late < timedelta(seconds=5)
    assert outcome.comparison == Comparison()
    assert len(outcome.ledger) == 100
    await senders.start(1, 2)
