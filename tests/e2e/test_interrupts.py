"""Ctrl-C at any moment: no word, no process left, and the next start works."""

import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from waiting import until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.timeout(300),
]
HEADRACE = Path(sys.executable).with_name("headrace")
COMMANDS = {"up": ("up", "--data", "data"), "demo": ("demo", "--recipients", "2000")}
# Seconds from its first moment on; one somewhere in each span.
SPANS = [(0.0, 0.2), (0.2, 0.6), (0.6, 1.2), (1.2, 2.0), (2.0, 3.5), (3.5, 6.0)]
# `up` ends like this when it was up; before, its start did not do what it should.
QUIET = {(130, ""), (0, "")}


class Place:
    """A folder where commands are run; every process that was started in it can be found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Process] = []

    async def start(self, *arguments: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            *(HEADRACE, *arguments),
            cwd=self.folder,
            env=os.environ | {"TMPDIR": str(self.folder)},
            stdout=PIPE,
            stderr=PIPE,
        )
        self.started.append(process)
        return process

    def running(self) -> list[str]:
        """Commands of processes that have to do with the folder, whoever their parent is now."""
        return [found for path in Path("/proc").glob("[0-9]*") if (found := self._ours(path))]

    def _ours(self, process: Path) -> str:
        try:
            command = (process / "cmdline").read_bytes()
            traces = command + (process / "environ").read_bytes()
            at = str((process / "cwd").readlink())
        except OSError:  # it has just ended, or is a zombie
            return ""
        ours = os.fsencode(self.folder) in traces or at.startswith(str(self.folder))
        return command.replace(b"\0", b" ").decode() if ours else ""


@pytest.fixture
def folder() -> Generator[Path]:
    """Short, and open to the account nobody, who runs the servers under root."""
    made = Path(tempfile.mkdtemp(prefix="headrace-test-", dir="/var/tmp"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


@pytest.fixture
async def place(folder: Path) -> AsyncGenerator[Place]:
    made = Place(folder)
    # Under nohup, as some run their checks, it is ignored, and would be in all that is started.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield made
    signal.signal(signal.SIGHUP, before)
    for process in made.started:
        if process.returncode is None:
            process.kill()
            await process.wait()
    await until(lambda: not made.running(), 60)


def has_begun(process: Process) -> bool:
    """Its own first line has run: it looks after SIGTERM, which Python by itself does not."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


async def end_of(process: Process) -> tuple[int, str]:
    async with asyncio.timeout(60):
        _, complaint = await process.communicate()
    assert process.returncode is not None
    return process.returncode, complaint.decode().strip()


async def reading_until(process: Process, words: bytes) -> None:
    assert process.stdout
    async with asyncio.timeout(90):
        while words not in await process.stdout.readline():
            assert process.returncode is None, await end_of(process)


async def stays_up(place: Place) -> None:
    again = await place.start(*COMMANDS["up"])
    await reading_until(again, b"Headrace is up")
    again.send_signal(signal.SIGINT)
    assert await end_of(again) == (0, "")
    await until(lambda: not place.running())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_it_is_quiet_while_its_parts_are_loaded(place: Place, number: signal.Signals) -> None:
    process = await place.start("doctor")
    maps = Path(f"/proc/{process.pid}/maps")
    await until(lambda: "pydantic_core" in maps.read_text())

    process.send_signal(number)

    assert await end_of(process) == (128 + number, "")


@pytest.mark.parametrize("name", COMMANDS)
async def test_at_any_moment_it_leaves_nothing_and_starts_again(place: Place, name: str) -> None:
    for span in SPANS:
        moment = random.Random(f"{name} {span}").uniform(*span)
        process = await place.start(*COMMANDS[name])
        await until(lambda process=process: has_begun(process))
        await asyncio.wait([asyncio.create_task(process.wait())], timeout=moment)

        process.send_signal(signal.SIGINT)

        assert await end_of(process) in QUIET, moment
        await until(lambda: not place.running())
        assert not (place.folder / ".headrace" / "env").exists()
    if name == "up":
        await stays_up(place)


async def test_impatience_does_not_cut_a_stop_short(place: Place) -> None:
    process = await place.start(*COMMANDS["demo"])
    await reading_until(process, b"Sending to")
    process.send_signal(signal.SIGINT)
    while process.returncode is None:
        process.send_signal(signal.SIGINT)
        await asyncio.wait([asyncio.create_task(process.wait())], timeout=0.01)

    # A hundred a second also strike where Python itself can only say that it was interrupted, and
    # after it has let go of its signals: a shell sees no difference.
    code, _ = await end_of(process)
    assert code in {130, -signal.SIGINT}
    assert place.running() == []
    assert list(place.folder.iterdir()) == []


async def test_what_is_killed_leaves_no_process_and_can_start_again(place: Place) -> None:
    process = await place.start(*COMMANDS["up"])
    await reading_until(process, b"Headrace is up")

    process.kill()

    await end_of(process)
    await until(lambda: not place.running(), 60)
    await stays_up(place)
