"""The commands of the README, as a reader copies them into a shell."""

import csv
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

pytestmark = pytest.mark.timeout(240)
ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
STAND_IN = Path(__file__).with_name("curl.py")
ID = r"[0-9a-f]{8}-[0-9a-f-]{27}"


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


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a curl for machines that have none."""
    folder = tmp_path_factory.mktemp("programs")
    script = f'#!/bin/sh\nexec "{sys.executable}" "{STAND_IN}" "$@"\n'
    (folder / "curl").write_text(script)
    (folder / "curl").chmod(0o755)
    return str(folder)


def run(blocks: list[str], folder: Path, *programs: str) -> list[str]:
    """Paste the blocks into one shell, which ends at the first that fails; what each printed."""
    mark = "--- the next block"
    path = ":".join([*programs, str(Path(sys.executable).parent), os.environ["PATH"]])
    answer = subprocess.run(  # noqa: S603 - our own README
        ["/bin/sh", "-eu", "-c", f"echo '{mark}'\n".join(blocks)],
        cwd=folder,
        env={"PATH": path, "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout.split(f"{mark}\n")


def has_in_order(told: str, *patterns: str) -> bool:
    return re.search(".*?".join(patterns), told, re.DOTALL) is not None


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def events(stack: Stack, campaign: str) -> list[str]:
    answer = httpx.get(
        f"{stack.sender.url}/v1/campaigns/{campaign}/events",
        headers={"Authorization": f"Bearer {stack.secrets.admin_key}"},
        trust_env=False,
    )
    return [event["kind"] for event in answer.json()["data"]]


STOPPED = ["started", "paused", "resumed", "cancelled"]


def test_sending_with_it(stack: Stack, folder: Path, stand_in: str) -> None:
    start, *blocks = commands("Send with it")
    assert start == "make env\n.venv/bin/headrace up\n"  # tests/e2e/test_up.py holds it to its word

    told = run(blocks, folder, *(() if shutil.which("curl") else (stand_in,)))

    assert told[0].startswith("Number 106540352242922 is set: campaigns send 63.37 of its 80 ")
    check_the_campaign(told[1])
    check_the_reasons(told[2])
    check_the_stop(stack, told[3])
    check_the_rest(told[4].splitlines(), rows(folder / "recipients.csv"))
    check_the_later_start(told[5].splitlines())
    check_the_stop_over_rest(stack, told[6].splitlines())


def test_the_stand_in_does_what_curl_does(folder: Path, stand_in: str) -> None:
    _, set_up, *_, over_rest, _, _ = commands("Send with it")
    _, told = run([set_up, over_rest], folder, stand_in)
    check_the_rest(told.splitlines(), rows(folder / "recipients.csv"))


def check_the_campaign(told: str) -> None:
    assert has_in_order(
        told,
        *("3 accepted, 0 duplicate, 1 invalid\nrow 5: ", r"It may start\.\n", r"People: 3\."),
        *(rf"Campaign {ID} is running\.", rf"Campaign {ID} is completed\."),
        *("Reminders of May: completed", r"accepted +2 +66\.7 %", r"failed +1 +33\.3 %"),
        *("131026 Message undeliverable", "3 accepted", rf"Campaign {ID} is in recipients\.csv"),
    )


def check_the_reasons(told: str) -> None:
    listed, one, *_, attempt = told.splitlines()
    assert listed == one
    assert listed.split() == [
        *(listed.split()[0], "+447400131026", "failed", "131026", "Message", "undeliverable"),
        "P-3",
    ]
    assert "attempt 1: failed: 131026 Message undeliverable" in attempt


def check_the_stop(stack: Stack, told: str) -> None:
    assert has_in_order(
        told,
        *("2000 accepted", "is running", "is paused", r"Reminders of May: paused \(operator\)"),
        *(r"Recipients: 2,000\n", "campaign_paused: operator", "is running", "Halted"),
        *("may leave again", "is cancelled"),
    )
    (campaign,) = set(re.findall(ID, told))
    assert [kind for kind in events(stack, campaign) if kind in STOPPED] == STOPPED


def check_the_rest(lines: list[str], exported: list[dict[str, str]]) -> None:
    number, upload, checked, started, ended, failed, errors, *rejects, last = lines
    assert json.loads(number)["rate"] == 80
    assert json.loads(upload)["accepted"] == 3
    assert json.loads(checked)["ready"] is True
    assert json.loads(started)["state"] == "running"
    assert json.loads(ended)["counts"]["total"] == 3
    (person,) = json.loads(failed)["data"]
    assert (person["external_id"], person["error_title"]) == ("P-3", "Message undeliverable")
    assert json.loads(errors)["data"][0]["code"] == 131026
    assert "not a number" in "".join(rejects)
    assert last == ""
    assert [row["phone"] for row in exported] == ["447400123456", "4915123456789", "447400131026"]
    assert exported[2]["error_code"] == "131026"


def check_the_later_start(lines: list[str]) -> None:
    upload, started, cancelled = map(json.loads, lines)
    assert upload["accepted"] == 2
    assert started["state"] == "scheduled"
    assert started["start_at"].startswith("2037-05-03T06:00:00")
    assert cancelled["state"] == "cancelled"


def check_the_stop_over_rest(stack: Stack, lines: list[str]) -> None:
    upload, *states, halted, unhalted, cancelled = map(json.loads, lines)
    assert upload["accepted"] == 2000
    assert [told["state"] for told in states] == ["running", "paused", "paused", "running"]
    assert states[2]["holding"][0]["reason"] == "campaign_paused"
    assert (halted["halted"], unhalted["halted"]) == (True, False)
    assert cancelled["state"] == "cancelled"
    kinds = events(stack, cancelled["id"])
    assert [kind for kind in kinds if kind in STOPPED] == STOPPED
