"""`headrace campaign watch` outlives the sender that it asks, and never touches the campaign."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest
from launching import Launch

from services.cli.processes import ServiceProcess
from services.cli.stack import Stack
from services.cli.trial import Trial

HEADRACE = Path(sys.executable).with_name("headrace")
Watch = Callable[[Trial, ServiceProcess], Awaitable[Process]]


@pytest.fixture
async def watch(stack: Stack) -> AsyncGenerator[Watch]:
    """A function that starts to watch a campaign through one of the senders."""
    started: list[Process] = []

    async def start(trial: Trial, sender: ServiceProcess) -> Process:
        told = {"HEADRACE_URL": sender.url, "HEADRACE_KEY": stack.secrets.admin_key}
        command = (HEADRACE, "campaign", "watch", trial.campaign)
        env = os.environ | told
        process = await asyncio.create_subprocess_exec(*command, env=env, stdout=PIPE, stderr=PIPE)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def line_with(process: Process, words: str) -> str:
    assert process.stdout
    async with asyncio.timeout(30):
        while line := (await process.stdout.readline()).decode():
            if words in line:
                return line
    raise AssertionError(f"it ended without {words!r}")


async def test_it_outlives_a_sender_that_restarts(
    stack: Stack, launch: Launch, watch: Watch
) -> None:
    sender = stack.start_sender()
    trial = await launch(150, 15, {})
    watching = await watch(trial, sender)
    assert "/s of 14.85/s" in await line_with(watching, " running ")
    await trial.rest.post(f"/v1/campaigns/{trial.campaign}/pause")
    held = await line_with(watching, " paused ")
    assert f"(cure: headrace campaign resume {trial.campaign})" in held

    sender.stop()
    await line_with(watching, "trying again")
    stack.start_sender(sender.port)
    await trial.rest.post(f"/v1/campaigns/{trial.campaign}/resume")

    await line_with(watching, f"Campaign {trial.campaign} is completed.")
    assert await watching.wait() == 0


async def test_ctrl_c_ends_it_quietly_and_not_the_campaign(
    stack: Stack, launch: Launch, watch: Watch
) -> None:
    trial = await launch(600, 10, {})
    watching = await watch(trial, stack.sender)
    await line_with(watching, " running ")

    watching.send_signal(signal.SIGINT)

    _, complaint = await watching.communicate()
    assert (watching.returncode, complaint.strip()) == (130, b"")
    assert (await trial.look())["state"] == "running"
    await trial.rest.post(f"/v1/campaigns/{trial.campaign}/cancel")
