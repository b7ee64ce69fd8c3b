"""`headrace doctor` at real servers: all is well, or which part is not, and its cure."""

import asyncio
import json
from collections.abc import Callable

import asyncpg
import pytest
from running import Processes

from services.cli.app import main
from services.cli.embedded import EmbeddedServers
from shared.db.migrations import upgrade

TOKEN = "a-token-of-the-tests"
NUMBER = "INSERT INTO numbers (phone_number_id, waba_id, token_name) VALUES ('1065', '1', $1)"

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
    asyncio.run(execute(url, "TRUNCATE numbers CASCADE"))
    return url


def sick(shown: str) -> list[str]:
    return [line.partition(": ")[0] for line in shown.splitlines() if line.startswith("SICK")]


def test_a_database_without_schema_is_told(doctor: Doctor, capsys) -> None:
    assert doctor() == 1
    shown = capsys.readouterr()
    assert sick(shown.out) == ["SICK  migrations"]
    assert "headrace migrate" in shown.out
    assert shown.err == "headrace: 1 of 8 need a cure\n"


def test_all_is_well(
    doctor: Doctor, schema: str, processes: Processes, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    asyncio.run(execute(schema, NUMBER, None))
    asyncio.run(execute(schema, NUMBER.replace("1065", "1066"), "own"))
    monkeypatch.setenv("HEADRACE_ACCESS_TOKEN_OWN", TOKEN)
    simulator = asyncio.run(
        processes.start(
            "simulator", "services.simulator.app:create_app", {"HEADRACE_APP_SECRETS": "x" * 16}
        )
    )
    monkeypatch.setenv("HEADRACE_GRAPH_URL", simulator.url)
    assert doctor("--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["part"] for one in found][-2:] == ["number 1065", "number 1066"]
    assert [one for one in found if one["cure"]] == []


def test_a_number_without_token_and_a_meta_that_is_away(
    doctor: Doctor, schema: str, capsys
) -> None:
    asyncio.run(execute(schema, NUMBER, None))
    asyncio.run(execute(schema, NUMBER.replace("1065", "1066"), "own"))
    assert doctor() == 1
    shown = capsys.readouterr().out
    assert sick(shown) == ["SICK  number 1065", "SICK  number 1066"]
    assert "does not answer" in shown
    assert "HEADRACE_ACCESS_TOKEN_OWN is missing" in shown
    assert TOKEN not in shown


def test_without_numbers_it_says_so(doctor: Doctor, schema: str, capsys) -> None:
    assert schema
    assert doctor() == 1
    assert sick(capsys.readouterr().out) == ["SICK  numbers"]


def test_servers_that_are_away_are_each_told(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://postgres:a-password@127.0.0.1:1/x")
    monkeypatch.setenv("REDIS_URL", "redis://:a-password@127.0.0.1:1/0")
    assert doctor() == 1
    shown = capsys.readouterr().out
    assert sick(shown) == ["SICK  postgres", "SICK  redis"]
    assert "a-password" not in shown


def test_servers_that_may_forget_are_told(
    doctor: Doctor, servers: EmbeddedServers, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("DATABASE_URL", servers.database_url())
    assert doctor() == 1
    assert "SICK  postgres durability: off: fsync" in capsys.readouterr().out


def test_a_missing_setting_is_named(doctor: Doctor, monkeypatch, capsys) -> None:
    monkeypatch.delenv("REDIS_URL")
    assert doctor() == 1
    assert capsys.readouterr().err.startswith("headrace: REDIS_URL: is missing")
