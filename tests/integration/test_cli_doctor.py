"""`headrace doctor` at real servers: all is well, or which part is not, and its cure."""

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import httpx
import pytest
from pooling import pooling
from running import Processes

from services.cli.app import main
from services.cli.embedded import EmbeddedServers
from shared.db.migrations import upgrade

TOKEN = "a-token-of-the-tests"
NUMBER = "INSERT INTO numbers (phone_number_id, waba_id, token_name) VALUES ('1065', '1', $1)"
TABLES = ("numbers", "campaigns", "campaign_counters", "webhook_heartbeats")
# A campaign whose message Meta took half an hour ago.
ACCEPTED = """
    WITH campaign AS (
        INSERT INTO campaigns (public_id, name, phone_number_id, template)
        VALUES (gen_random_uuid(), 'c', '1065', '{}') RETURNING id
    )
    INSERT INTO campaign_counters (campaign_id, minute, status, error_code, entered, departed)
    SELECT id, now() - interval '30 minutes', 'accepted', 0, 1, 1 FROM campaign
"""

Doctor = Callable[..., int]


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, durable_servers: EmbeddedServers) -> Doctor:
    """Runs it against durable servers, unless the environment is told otherwise."""
    told = {
        "DATABASE_URL": durable_servers.database_url(),
        "REDIS_URL": durable_servers.redis_url,
        "HEADRACE_ACCESS_TOKEN": TOKEN,
        "HEADRACE_GRAPH_URL": "http://127.0.0.1:1",
        "HEADRACE_CONCURRENCY": "1",
    }
    for name, value in told.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["headrace", "doctor", *arguments])
        return main()

    return run


async def execute(url: str, statement: str, *values: object) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement, *values)
    await connection.close()


@pytest.fixture
def schema(durable_servers: EmbeddedServers) -> str:
    """The URL of a migrated database without numbers."""
    url = durable_servers.database_url()
    upgrade(url)
    asyncio.run(execute(url, f"TRUNCATE {', '.join(TABLES)}"))
    return url


def sick(shown: str) -> list[str]:
    return [line.partition(": ")[0] for line in shown.splitlines() if line.startswith("SICK")]


def test_a_database_without_schema_is_told(doctor: Doctor, capsys) -> None:
    assert doctor() == 1
    shown = capsys.readouterr()
    assert sick(shown.out) == ["SICK  migrations"]
    assert "headrace migrate" in shown.out
    assert shown.err == "headrace: 1 of 11 need a cure\n"


@pytest.fixture
def simulator(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a Meta that the doctor asks."""
    env = {"HEADRACE_APP_SECRETS": "x" * 16, "HEADRACE_SIM_ACCESS_TOKEN": TOKEN}
    app = "services.simulator.app:create_app"
    url = asyncio.run(processes.start("simulator", app, env)).url
    monkeypatch.setenv("HEADRACE_GRAPH_URL", url)
    return url


def play(simulator: str, **account: Any) -> None:
    answer = httpx.put(f"{simulator}/_sim/scenario", json={"account": account}, trust_env=False)
    answer.raise_for_status()


def test_all_is_well(
    doctor: Doctor, schema: str, simulator: str, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    assert simulator
    asyncio.run(execute(schema, NUMBER, None))
    asyncio.run(execute(schema, NUMBER.replace("1065", "1066"), "own"))
    monkeypatch.setenv("HEADRACE_ACCESS_TOKEN_OWN", TOKEN)
    assert doctor("--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["part"] for one in found][-10:] == [
        "recipients",
        "Meta",
        "token HEADRACE_ACCESS_TOKEN",
        "account 1",
        "number 1065",
        "token HEADRACE_ACCESS_TOKEN_OWN",
        "account 1",
        "number 1066",
        "webhooks 1065",
        "webhooks 1066",
    ]
    (rehearsed,) = [one for one in found if one["level"] != "well"]
    assert (rehearsed["part"], rehearsed["level"]) == ("Meta", "warn")
    assert "HEADRACE_GRAPH_URL is 127.0.0.1:" in rehearsed["found"]


def test_a_number_set_by_mistake_is_put_aside_by_a_pause(
    doctor: Doctor, schema: str, simulator: str, capsys
) -> None:
    asyncio.run(execute(schema, NUMBER, None))
    play(simulator, registered=False, subscribed=False)
    pause = "UPDATE numbers SET state = 'paused', paused_reason = $1"
    asyncio.run(execute(schema, pause, "account"))
    assert doctor() == 1
    capsys.readouterr()
    asyncio.run(execute(schema, pause, "operator"))
    assert doctor() == 0
    assert "warn  number 1065: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("account", "expected"),
    [
        ({"token_valid": False}, "token HEADRACE_ACCESS_TOKEN"),
        ({"token_expires_in_s": -1}, "token HEADRACE_ACCESS_TOKEN"),
        ({"scopes": ["whatsapp_business_management"]}, "token HEADRACE_ACCESS_TOKEN"),
        ({"subscribed": False}, "account 1"),
        ({"registered": False}, "number 1065"),
        ({"status": "BANNED"}, "number 1065"),
    ],
)
def test_what_meta_says_is_told(
    doctor: Doctor, schema: str, simulator: str, account: dict[str, Any], expected: str, capsys
) -> None:
    asyncio.run(execute(schema, NUMBER, None))
    play(simulator, **account)
    assert doctor() == 1
    shown = capsys.readouterr().out
    assert sick(shown) == [f"SICK  {expected}"]
    assert "number 1065: " in shown  # also when the token opens nothing
    assert TOKEN not in shown


def test_a_token_that_soon_expires_is_no_sickness(
    doctor: Doctor, schema: str, simulator: str, capsys
) -> None:
    asyncio.run(execute(schema, NUMBER, None))
    play(simulator, token_expires_in_s=86_400)
    assert doctor() == 0
    shown = capsys.readouterr().out
    assert "warn  token HEADRACE_ACCESS_TOKEN: valid until " in shown


def test_messages_without_webhooks_are_told(
    doctor: Doctor, schema: str, simulator: str, capsys
) -> None:
    assert simulator
    asyncio.run(execute(schema, NUMBER, None))
    asyncio.run(execute(schema, ACCEPTED))
    assert doctor() == 1
    assert sick(capsys.readouterr().out) == ["SICK  webhooks 1065"]
    heard = "INSERT INTO webhook_heartbeats (phone_number_id, received_at) VALUES ('1065', now())"
    asyncio.run(execute(schema, heard))
    assert doctor() == 0


def test_who_may_be_sent_to_is_told(
    doctor: Doctor, schema: str, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    assert schema
    monkeypatch.setenv("HEADRACE_ALLOWED_RECIPIENTS", "+44 7400 123456, +49")
    doctor()
    shown = capsys.readouterr().out
    assert "well  recipients: only those of HEADRACE_ALLOWED_RECIPIENTS (entries: 2)" in shown
    assert "7400" not in shown
    monkeypatch.setenv("HEADRACE_ALLOWED_RECIPIENTS", "")
    assert doctor() == 1
    assert "HEADRACE_ALLOWED_RECIPIENTS: is empty" in capsys.readouterr().err


def test_a_number_without_token_and_a_meta_that_is_away(
    doctor: Doctor, schema: str, capsys
) -> None:
    asyncio.run(execute(schema, NUMBER, None))
    asyncio.run(execute(schema, NUMBER.replace("1065", "1066"), "own"))
    assert doctor() == 1
    shown = capsys.readouterr().out
    own = "HEADRACE_ACCESS_TOKEN_OWN"
    assert sick(shown) == ["SICK  Meta with HEADRACE_ACCESS_TOKEN", f"SICK  token {own}"]
    assert "does not answer (nobody listens there)" in shown
    assert f"{own} is missing" in shown
    assert "warn  number 1065: not looked at" in shown
    assert "warn  number 1066: not looked at" in shown
    assert TOKEN not in shown


def test_without_numbers_it_says_so(doctor: Doctor, schema: str, capsys) -> None:
    assert schema
    assert doctor() == 1
    assert sick(capsys.readouterr().out) == [
        "SICK  numbers",
        "SICK  Meta with HEADRACE_ACCESS_TOKEN",
    ]


def test_servers_that_are_away_are_each_told(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://postgres:a-password@127.0.0.1:1/x")
    monkeypatch.setenv("REDIS_URL", "redis://:a-password@127.0.0.1:1/0")
    assert doctor() == 1
    shown = capsys.readouterr().out
    assert sick(shown) == ["SICK  postgres", "SICK  redis"]
    assert shown.count("does not answer (nobody listens there)") == 2
    assert "a-password" not in shown


def test_a_database_that_is_not_there_is_told(
    doctor: Doctor, durable_servers: EmbeddedServers, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    url = urlsplit(durable_servers.database_url())._replace(path="/elsewhere").geturl()
    monkeypatch.setenv("DATABASE_URL", url)
    assert doctor() == 1
    assert 'SICK  postgres: refuses us: database "elsewhere"' in capsys.readouterr().out


def test_servers_that_may_forget_are_told(
    doctor: Doctor, servers: EmbeddedServers, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("DATABASE_URL", servers.database_url())
    assert doctor() == 1
    assert "SICK  postgres durability: off: fsync" in capsys.readouterr().out


@pytest.mark.parametrize("ignores", [False, True])
def test_a_pooler_is_recognised(
    ignores: bool,  # noqa: FBT001 -- a case
    doctor: Doctor,
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
) -> None:
    cures = {}
    with pooling(schema, ignores=ignores) as pooler:
        monkeypatch.setenv("DATABASE_URL", pooler.url)
        for told in ("0", "1"):
            monkeypatch.setenv("HEADRACE_PGBOUNCER", told)
            assert doctor("--json") == 1  # no number is registered
            found = {one["part"]: one for one in json.loads(capsys.readouterr().out)}
            assert found["postgres pooler"]["found"] == "transactions are pooled"
            assert found["migrations"]["cure"] is None
            cures[told] = found["postgres pooler"]["cure"]
    assert cures == {"0": "set HEADRACE_PGBOUNCER=1 for sender and ingest", "1": None}


def test_a_missing_setting_is_named(doctor: Doctor, monkeypatch, capsys) -> None:
    monkeypatch.delenv("REDIS_URL")
    assert doctor() == 1
    assert capsys.readouterr().err.startswith("headrace: REDIS_URL: is missing")
