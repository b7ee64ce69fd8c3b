"""The page on connecting a real number, pasted into a shell, with the simulator in Meta's place."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest

from services.cli.stack import Stack
from services.cli.up import env_file

PAGE = (Path(__file__).parents[2] / "docs" / "connecting.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
MARK = "--- the next block"

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(shutil.which("curl") is None, reason="this machine has no curl"),
]


@pytest.fixture
def stack(tmp_path: Path) -> Generator[Stack]:
    """Of its own: its sender may send to the page's first number only."""
    (allowed,) = re.findall(r"HEADRACE_ALLOWED_RECIPIENTS=(\+\d+)", PAGE)
    logs = tmp_path / "logs"
    logs.mkdir()
    with Stack(logs, {"HEADRACE_ALLOWED_RECIPIENTS": allowed}) as running:
        yield running


@pytest.fixture
def folder(stack: Stack, tmp_path: Path) -> Generator[Path]:
    """Where `headrace up` was started, with a Meta at which nothing has been done yet."""
    scenario = {
        "account": {"registered": False, "subscribed": False},
        "webhooks": {"url": stack.webhook_url},
    }
    url = f"{stack.simulator.url}/_sim/scenario"
    httpx.put(url, json=scenario, trust_env=False).raise_for_status()
    made = tmp_path / "work" / ".headrace"
    made.mkdir(parents=True)
    with env_file(stack, made / "env"):
        yield made.parent


def shell(blocks: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Paste the blocks into one shell, which ends at the first that fails."""
    return subprocess.run(  # noqa: S603 - our own page
        ["/bin/sh", "-eu", "-c", f"echo '{MARK}'\n".join(blocks)],
        cwd=folder,
        env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_step_by_step(stack: Stack, folder: Path) -> None:
    doctor = next(block for block in BLOCKS if "headrace doctor" in block)
    variables = "".join(re.findall(r"^(?:account|number)=.*\n", "".join(BLOCKS), re.MULTILINE))
    before = shell([BLOCKS[0], variables, doctor], folder)
    assert before.returncode == 1
    sick = re.findall(r"^SICK  (\w+)", before.stdout, re.MULTILINE)
    assert sick == ["account", "number"], before.stdout

    answer = shell(BLOCKS, folder)

    assert answer.returncode == 0, answer.stdout + answer.stderr
    parts = answer.stdout.split(f"{MARK}\n")
    told = dict(
        zip(
            ("variables", "token", "number", "ingest", "apps", "doctor", "first"),
            parts,
            strict=True,
        )
    )
    assert '"platform_type":"CLOUD_API"' in told["number"]
    assert '"is_valid":true' in told["token"]
    assert told["ingest"].endswith("403\n")
    assert "Simulated app" in told["apps"]
    assert "(entries: 1)" in told["doctor"]
    assert re.search(r"447700900123\s+skipped\s.*not_allowed", told["first"]), told["first"]
    assert re.search(r"447400123456\s+(accepted|sent|delivered|read)\b", told["first"])
    ledger = httpx.get(f"{stack.simulator.url}/_sim/ledger", trust_env=False).text
    assert [json.loads(line)["to"] for line in ledger.splitlines()] == ["+447400123456"]
