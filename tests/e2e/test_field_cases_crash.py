"""What people met in the field with crashes, restarts and clocks, each under its id."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import httpx
import pytest
from launching import Launch
from test_campaign import QUICK, at_least, ended, ids_in, ids_of, second_sender
from waiting import until

from services.cli.audience_file import write_audience
from services.cli.comparison import Comparison
from services.cli.processes import ServiceProcess
from services.cli.stack import Stack
from services.cli.trial import Trial, open_trial
from shared.domain.status import Status

CALM = {"latency": {"median_ms": 20, "sigma": 0}, "webhooks": QUICK}
# Each request hangs for a second and is answered then; of four in ten nothing is heard later.
HANGING = {
    "latency": {"median_ms": 0},
    "ambiguous": [{"kind": "stall", "share": 1, "stall_s": 1, "withhold": 0.4}],
    "webhooks": {**QUICK, "delay_s": {"sent": 4, "delivered": 0.3, "read": 0.5}},
}
SILENT = """
    UPDATE uploads SET heartbeat_at = heartbeat_at - interval '2 minutes' WHERE state = 'running'
"""
LISTED = "/v1/campaigns/{}/recipients?status=unknown&limit=100"
SKEW_SECONDS = 300
# A process that starts with this among its modules lives so many seconds in the future.
SKEWED = """
import ctypes, datetime, gc, os, time
ahead = float(os.environ["AHEAD"])
read, read_ns, now = time.time, time.time_ns, datetime.datetime.now
time.time = lambda: read() + ahead
time.time_ns = lambda: read_ns() + int(ahead * 1e9)
shifted = lambda kind, tz=None: now(tz) + datetime.timedelta(seconds=ahead)
gc.get_referents(datetime.datetime.__dict__)[0]["now"] = classmethod(shifted)
ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime.datetime))
"""


@contextlib.asynccontextmanager
async def client_of(stack: Stack, process: ServiceProcess) -> AsyncGenerator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {stack.secrets.admin_key}"}
    async with httpx.AsyncClient(
        base_url=process.url, headers=headers, timeout=30, trust_env=False
    ) as client:
        yield client


def state_of(trial: Trial) -> Callable[[], Awaitable[str]]:
    async def look() -> str:
        return str((await trial.look())["state"])

    return look


async def test_rd_04_two_starts_and_two_schedulers_start_it_once(
    stack: Stack, numbers, tmp_path: Path
) -> None:
    first = await second_sender(stack)
    number = next(numbers)
    audience = write_audience(tmp_path / "people.csv", 300, int(number))
    async with (
        open_trial(stack, number, 150, "Twice") as trial,
        client_of(stack, first) as one,
        client_of(stack, stack.sender) as other,
    ):
        path = f"/v1/campaigns/{trial.campaign}/start"
        await trial.meta.play({**CALM, "webhooks": {**QUICK, "url": stack.webhook_url}})
        await trial.upload(audience.path)
        answers = await asyncio.gather(*(client.post(path) for client in (one, other) * 2))
        assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
        outcome = await ended(trial)
        assert (await one.post(path)).status_code == 409
        events = (await trial.rest.get(f"/v1/campaigns/{trial.campaign}/events"))["data"]
    assert outcome.comparison == Comparison()
    assert len({item.to for item in outcome.ledger}) == len(outcome.ledger) == 300
    assert [event["kind"] for event in events].count("started") == 1
    await asyncio.to_thread(first.stop)


async def test_cr_01_what_was_open_at_a_kill_is_not_sent_again(
    stack: Stack, launch: Launch
) -> None:
    trial = await launch(60, 20, HANGING)

    async def recorded() -> int:
        return len(await trial.meta.ledger())

    await until(recorded, 20, is_right=lambda count: count >= 10)
    port = stack.sender.port
    stack.sender.kill()
    in_doubt = await ids_in(trial, Status.CLAIMED)
    stack.sender = stack.start_sender(port)
    met = {item.token.message_id for item in await trial.meta.ledger() if item.token} & in_doubt
    outcome = await ended(trial)
    await until(state_of(trial), 30, is_right="completed".__eq__)

    seen, unknown = outcome.comparison, ids_of(outcome, Status.UNKNOWN)
    silent = {item.token.message_id for item in outcome.ledger if item.token and item.withheld}
    assert met, "nothing was on the wire: the kill proves nothing"
    assert seen == Comparison(
        unknown_extra=seen.unknown_extra, unknown_missing=seen.unknown_missing
    )
    # Of what Meta had recorded, all that was heard of is settled, and the rest is listed.
    assert met & silent <= unknown <= in_doubt
    assert not (met - silent) & unknown
    listed = (await trial.rest.get(LISTED.format(trial.campaign)))["data"]
    assert {row["id"] for row in listed} == unknown
    assert len({item.to for item in outcome.ledger}) == len(outcome.ledger)


async def test_cr_03_a_restart_a_new_rate_and_a_pause_finish_nothing_early(
    stack: Stack, launch: Launch
) -> None:
    trial = await launch(600, 120, CALM)
    path = f"/v1/campaigns/{trial.campaign}"
    finished_early: list[object] = []

    async def goes_on_to(sent: int) -> None:
        async def look() -> bool:
            told = await trial.look()
            if told["state"] not in {"running", "paused"} and told["counts"].get("pending"):
                finished_early.append(told)
            return bool(await at_least(trial, sent)())

        await until(look, 30)

    await goes_on_to(100)
    port = stack.sender.port
    assert await asyncio.to_thread(stack.sender.stop) != -9
    stack.sender = stack.start_sender(port)
    assert await state_of(trial)() == "running"
    await goes_on_to(200)
    number = (await trial.look())["phone_number_id"]
    await trial.rest.put(
        f"/v1/phone-numbers/{number}", {"waba_id": "102290129340398", "rate": 200, "headroom": 0}
    )
    await goes_on_to(350)
    await trial.rest.post(f"{path}/pause")
    await trial.rest.put(
        f"/v1/phone-numbers/{number}", {"waba_id": "102290129340398", "rate": 150, "headroom": 0}
    )
    assert await state_of(trial)() == "paused"
    await trial.rest.post(f"{path}/resume")
    outcome = await ended(trial)
    assert finished_early == []
    assert outcome.comparison == Comparison()
    assert len(outcome.ledger) == 600
    assert not ids_of(outcome, Status.UNKNOWN)


async def test_cr_05_a_killed_import_leaves_nothing_and_holds_nobody_up(
    stack: Stack, numbers, tmp_path: Path
) -> None:
    number = next(numbers)
    audience = write_audience(tmp_path / "people.csv", 2000, int(number))
    half = audience.path.read_bytes()[:20_000]
    victim = stack.start_sender()
    cut_off = asyncio.Event()

    async def half_of_it() -> AsyncGenerator[bytes]:
        yield half
        await cut_off.wait()

    async with open_trial(stack, number, 400, "Import") as trial:
        path = f"/v1/campaigns/{trial.campaign}"

        async def uploads() -> list[str]:
            return [one["state"] for one in (await trial.look())["uploads"]]

        async with client_of(stack, victim) as client:
            csv = {"Content-Type": "text/csv"}
            sending = asyncio.create_task(
                client.post(f"{path}/recipients", content=half_of_it(), headers=csv)
            )
            await until(uploads, is_right=["running"].__eq__)
            victim.kill()
            cut_off.set()
            with contextlib.suppress(httpx.TransportError):
                await sending
        assert (await trial.look())["counts"]["total"] == 0
        # It counts as running for as long as it may be alive.
        connection = await asyncpg.connect(stack.database_url)
        await connection.execute(SILENT)
        await connection.close()
        assert await uploads() == ["failed"]
        assert (await trial.upload(audience.path))["accepted"] == 2000


# Half a minute of clocks that differ: with the long ones, since `make test` has ten minutes.
@pytest.mark.soak
async def test_cl_02_no_clock_but_the_databases_decides(
    stack: Stack, numbers, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SKEWED)

    def skewed(seconds: int) -> ServiceProcess:
        return stack.start_sender(more={"PYTHONPATH": str(tmp_path), "AHEAD": str(seconds)})

    number, port = next(numbers), stack.sender.port
    audience = write_audience(tmp_path / "people.csv", 400, int(number))
    await asyncio.to_thread(stack.sender.stop)
    ahead, behind = skewed(SKEW_SECONDS), skewed(-SKEW_SECONDS)
    stack.sender = behind
    scenario = {
        "latency": {"median_ms": 100, "sigma": 0.3},
        "errors": [{"code": 131016, "share": 0.2}],
        "webhooks": {**QUICK, "url": stack.webhook_url},
    }
    async with open_trial(stack, number, 60, "Clocks") as trial:
        await trial.meta.play(scenario)
        await trial.upload(audience.path)
        at = datetime.now(UTC) + timedelta(seconds=2)
        async with client_of(stack, ahead) as client:
            answer = await client.post(
                f"/v1/campaigns/{trial.campaign}/start", json={"at": at.isoformat()}
            )
            assert answer.status_code == 200, answer.text
        await until(at_least(trial, 150), 60)
        ahead.kill()
        in_doubt = await ids_in(trial, Status.CLAIMED)
        outcome = await ended(trial)
    seen = outcome.comparison
    assert seen == Comparison(unknown_extra=seen.unknown_extra)
    assert set(seen.unknown_extra) <= in_doubt
    assert outcome.met.get("131016")
    first = min(item.at for item in outcome.ledger)
    assert at.timestamp() <= first <= at.timestamp() + 8
    await asyncio.to_thread(behind.stop)
    stack.sender = stack.start_sender(port)
