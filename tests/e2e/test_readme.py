"""The commands of the README, as a reader copies them into a shell."""

import os
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest

from services.cli.stack import Stack
from services.cli.up import env_file

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands(section: str) -> list[str]:
    """The shell blocks of a section."""
    text = README.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def folder(stack: Stack, tmp_path: Path) -> Generator[Path]:
    """Where `headrace up` was started, with a simulator whose people are quick."""
    webhooks = {"url": stack.webhook_url, "delay_s": {"sent": 0.1, "delivered": 0.1, "read": 0.1}}
    url = f"{stack.simulator.url}/_sim/scenario"
    httpx.put(url, json={"webhooks": webhooks}, trust_env=False).raise_for_status()
    env = tmp_path / ".headrace" / "env"
    env.parent.mkdir()
    with env_file(stack, env):
        yield tmp_path


def run(script: str, folder: Path) -> str:
    answer = subprocess.run(  # noqa: S603 - our own README
        ["/bin/sh", "-eu", "-c", script],
        cwd=folder,
        env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_sending_with_it(stack: Stack, folder: Path) -> None:
    start, by_command, by_rest = commands("Send with it")
    assert start == ".venv/bin/headrace up\n"  # tests/e2e/test_up.py holds it to its word

    told = run(by_command, folder)

    assert "2 accepted, 0 duplicate, 1 invalid" in told
    (campaign,) = re.findall(r"Campaign (\S+) is completed\.", told)
    assert "4915123456789" in (folder / "recipients.csv").read_text()
    # Without curl, which a machine may lack: each of its lines asks for one path.
    paths = re.findall(r'\$HEADRACE_URL(\S+)"', by_rest)
    headers = {"Authorization": f"Bearer {stack.secrets.admin_key}"}
    with httpx.Client(base_url=stack.sender.url, headers=headers, trust_env=False) as client:
        answers = [client.get(path.replace("$campaign", campaign)).text for path in paths]
    parts = ('"counts":', "4915123456789", "not a number", '"minute":', '"4915123456789"')
    for part, answer in zip(parts, answers, strict=True):
        assert part in answer
