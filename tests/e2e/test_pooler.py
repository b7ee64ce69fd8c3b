"""Everything through a transaction pooler (PgBouncer), and what happens when nobody told of it."""

import asyncio
import json
from collections.abc import Generator
from functools import partial
from pathlib import Path

import asyncpg
import pytest
from pooling import POOL, Pooler, pooling
from running import Processes
from test_campaign import QUICK, at_least
from waiting import until

from services.cli.audience_file import write_audience
from services.cli.comparison import Comparison
from services.cli.embedded import EmbeddedServers
from services.cli.own_servers import OwnServers
from services.cli.processes import ServiceProcess
from services.cli.stack import INGEST, SENDER, Stack
from services.cli.trial import open_trial

pytestmark = pytest.mark.timeout(180)
NUMBER = "106540352999001"
CALM = {"latency": {"median_ms": 20, "sigma": 0}, "webhooks": QUICK}
SENDER_SECRETS = {
    "HEADRACE_ACCESS_TOKEN": "a-token-of-the-tests",
    "HEADRACE_ADMIN_KEY": "an-admin-key-of-the-tests",
    "HEADRACE_GRAPH_URL": "http://127.0.0.1:1",
}
INGEST_SECRETS = {"HEADRACE_APP_SECRETS": "x" * 16, "HEADRACE_VERIFY_TOKEN": "a-word"}
TOO_SLOW = "57014"
# What a process must not need: it would be another client's, or nobody's.
SESSION_STATE = """
    SELECT 'statement ' || name FROM pg_prepared_statements
    UNION ALL SELECT 'channel ' || pg_listening_channels()
    UNION ALL SELECT 'lock ' || objid FROM pg_locks WHERE locktype = 'advisory'
    UNION ALL SELECT 'table ' || relname FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'
    UNION ALL SELECT 'setting ' || name FROM pg_settings
    WHERE source = 'session' AND setting <> reset_val
      AND name NOT IN ('application_name', 'client_encoding')
"""


@pytest.fixture
def pooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[Stack, Pooler]]:
    """A stack that is told of the pooler, from the first migration on."""
    monkeypatch.setenv("HEADRACE_PGBOUNCER", "1")
    with (
        EmbeddedServers() as servers,
        pooling(servers.database_url()) as pooler,
        Stack(tmp_path, servers=OwnServers(pooler.url, servers.redis_url)) as stack,
    ):
        yield stack, pooler


async def session_state(pooler: Pooler) -> list[str]:
    """What is left in the pooler's sessions, looked at one after the other."""
    connection = await asyncpg.connect(pooler.url, statement_cache_size=0)
    try:
        looks = [await connection.fetch(SESSION_STATE) for _ in range(POOL * 3)]
    finally:
        await connection.close()
    return sorted({row[0] for look in looks for row in look})


async def test_cd_01_a_whole_campaign_through_a_transaction_pooler(
    pooled: tuple[Stack, Pooler], tmp_path: Path
) -> None:
    stack, pooler = pooled
    stack.start_sender()
    people = write_audience(tmp_path / "people.csv", 400, 7)
    async with open_trial(stack, NUMBER, 100, "Pooled") as trial:
        path = f"/v1/campaigns/{trial.campaign}"
        await trial.meta.play({**CALM, "webhooks": {**QUICK, "url": stack.webhook_url}})
        assert (await trial.upload(people.path))["accepted"] == 400
        assert (await trial.upload(people.path))["duplicate"] >= 400
        await trial.start()
        await until(at_least(trial, 100), 30)
        assert (await trial.rest.post(f"{path}/pause"))["state"] == "paused"
        assert (await trial.rest.post(f"{path}/resume"))["state"] == "running"
        assert await trial.settle(60)
        outcome = await trial.compare()
        exported = await trial.rest.text(f"{path}/export?format=ndjson")

    assert outcome.comparison == Comparison()
    assert outcome.counts == outcome.statuses
    assert set(outcome.statuses) <= {"delivered", "read"}
    assert len(exported.splitlines()) == len(outcome.ledger) == 400
    # Or the pooler was none: its clients went from one session to the other.
    assert pooler.moves > 100
    assert pooler.refused == 0
    await until(lambda: session_state(pooler), is_right=[].__eq__)
    assert [line for process in stack.started for line in complaints(process)] == []


@pytest.mark.parametrize("ignores", [False, True])
async def test_cd_01_a_pooler_that_nobody_told_of_is_recognised(
    ignores: bool,  # noqa: FBT001 -- a case
    processes: Processes,
    database_url: str,
    redis_url: str,
) -> None:
    """Whether it refuses the settings of a session, as it does unless told, or forgets them."""
    with pooling(database_url, ignores=ignores) as pooler:
        common = {"DATABASE_URL": pooler.url}
        sender = await processes.start(
            "sender", SENDER, {**common, "REDIS_URL": redis_url, **SENDER_SECRETS}, ready=False
        )
        ingest = await processes.start("ingest", INGEST, {**common, **INGEST_SECRETS}, ready=False)
        for process in (sender, ingest):
            await until(partial(cures, process), 30)
        assert pooler.refused
        await asyncio.gather(*(asyncio.to_thread(one.stop) for one in (sender, ingest)))


def complaints(process: ServiceProcess) -> list[str]:
    """A claim that was slow on a busy machine is none: it is tried again."""
    lines = [json.loads(line) for line in process.log.read_text().splitlines() if line[:1] == "{"]
    return [
        f"{process.name}: {line}"
        for line in lines
        if line["level"] in {"warning", "error"} and line.get("cause") != TOO_SLOW
    ]


def cures(process: ServiceProcess) -> list[str]:
    """What it says of the pooler."""
    return [line for line in complaints(process) if "set HEADRACE_PGBOUNCER=1" in line]
