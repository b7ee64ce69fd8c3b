"""The demo as people run it: one command, a clean end, and no process left behind."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from running import children, is_running
from waiting import until

HEADRACE = Path(sys.executable).with_name("headrace")
PROMISED = {
    "recipients",
    "accepted",
    "delivered",
    "failed",
    "unknown",
    "rejected",
    "lost",
    "doubled",
    "rate_configured",
    "rate_achieved",
    "max_in_one_second",
    "seconds",
}


async def start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        HEADRACE, "demo", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


@pytest.mark.timeout(180)
async def test_a_small_demo_ends_clean() -> None:
    demo = await start("--json", "--recipients", "300")
    async with asyncio.timeout(150):
        out, err = await demo.communicate()
    assert demo.returncode == 0, err.decode() + out.decode()
    told = json.loads(out)
    assert told.keys() >= PROMISED
    assert told["clean"]
    assert (told["lost"], told["doubled"]) == (0, 0)
    assert told["recipients"] == 300
    assert told["accepted"] + told["failed"] + told["unknown"] == 300
    assert told["rejected"] == 6 + 3


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
async def test_an_interrupted_demo_leaves_nothing_behind(
    number: signal.Signals, tmp_path: Path
) -> None:
    demo = await start("--recipients", "5000", "--keep-logs", str(tmp_path))
    assert demo.stdout
    async with asyncio.timeout(60):
        while b"Sending to" not in await demo.stdout.readline():
            pass
    started = children(demo.pid)
    assert len(started) >= 5
    os.kill(demo.pid, number)
    async with asyncio.timeout(60):
        _, err = await demo.communicate()
    assert demo.returncode == 130, err.decode()
    await until(lambda: not any(map(is_running, started)))
