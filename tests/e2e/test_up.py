"""`headrace up` as people run it: started, stopped at any moment, started again with its data."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path

import pytest
from running import children, is_running
from waiting import until

from services.cli.rest import Rest
from services.cli.trial import TEMPLATE

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.timeout(180),
]
HEADRACE = Path(sys.executable).with_name("headrace")
NUMBER = "106540352242922"


class Up:
    """Starts `headrace up` in a folder of its own; what a test leaves running is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env_file = folder / "work" / ".headrace" / "env"
        self.started: list[Process] = []
        self.said = ""

    async def start(self, data: str = "data") -> Process:
        process = await asyncio.create_subprocess_exec(
            *(HEADRACE, "up", "--data", self.folder / data),
            cwd=self.folder / "work",
            env=os.environ | {"TMPDIR": str(self.folder)},
            stdout=PIPE,
            stderr=PIPE,
        )
        self.started.append(process)
        return process

    async def ready(self) -> tuple[Process, Mapping[str, str]]:
        """It, and what it says in its file."""
        self.said = ""
        process = await self.start()
        assert process.stdout
        async with asyncio.timeout(90):
            while "Headrace is up" not in self.said:
                self.said += (await process.stdout.readline()).decode()
                assert process.returncode is None
        lines = self.env_file.read_text().splitlines()
        return process, dict(line.removeprefix("export ").split("=", 1) for line in lines)


@pytest.fixture
def folder() -> Generator[Path]:
    """Short, and open to the account nobody, who runs the servers under root."""
    made = Path(tempfile.mkdtemp(prefix="headrace-test-", dir="/var/tmp"))
    made.chmod(0o711)
    (made / "work").mkdir()
    yield made
    shutil.rmtree(made)


@pytest.fixture
async def up(folder: Path) -> AsyncGenerator[Up]:
    made = Up(folder)
    yield made
    for process in made.started:
        if process.returncode is None:
            left = children(process.pid)
            process.kill()
            await process.wait()
            await until(lambda left=left: not any(map(is_running, left)), 60)


async def ended(process: Process, number: signal.Signals | None = None) -> tuple[int, str]:
    """Its exit code and what it complained about; none of its processes is left."""
    left = children(process.pid)
    if number:
        process.send_signal(number)
    async with asyncio.timeout(60):
        _, complaint = await process.communicate()
    await until(lambda: not any(map(is_running, left)))
    assert process.returncode is not None
    return process.returncode, complaint.decode().strip()


def started_with(process: Process, part: str) -> int:
    """The one of its children that has this in its command."""
    (found,) = (
        pid for pid in children(process.pid) if part in Path(f"/proc/{pid}/cmdline").read_text()
    )
    return found


async def test_campaigns_and_the_key_outlive_a_restart(up: Up) -> None:
    first, told = await up.ready()
    assert stat.S_IMODE(up.env_file.stat().st_mode) == 0o600
    async with Rest.open(told["HEADRACE_URL"], told["HEADRACE_KEY"]) as rest:
        await rest.put(f"/v1/phone-numbers/{NUMBER}", {"waba_id": "1"})
        draft = {"name": "Kept", "phone_number_id": NUMBER, "template": TEMPLATE}
        campaign = (await rest.post("/v1/campaigns", draft))["id"]
    assert await ended(first, signal.SIGINT) == (0, "")
    assert not up.env_file.exists()

    second, again = await up.ready()
    assert again["HEADRACE_KEY"] == told["HEADRACE_KEY"]
    async with Rest.open(again["HEADRACE_URL"], again["HEADRACE_KEY"]) as rest:
        assert (await rest.get(f"/v1/campaigns/{campaign}"))["name"] == "Kept"
    assert await ended(second, signal.SIGTERM) == (0, "")


async def doctor(folder: Path, script: str) -> tuple[int, str]:
    """Its exit code and what it says, in a shell of its own."""
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", script),
        cwd=folder,
        env={"PATH": f"{HEADRACE.parent}:{os.environ['PATH']}", "HOME": str(folder)},
        stdout=PIPE,
        stderr=STDOUT,
    )
    async with asyncio.timeout(60):
        shown, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, shown.decode()


async def test_its_doctor_finds_it_well(up: Up) -> None:
    process, told = await up.ready()
    settings = up.env_file.with_name("sender.env")
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    async with Rest.open(told["HEADRACE_URL"], told["HEADRACE_KEY"]) as rest:
        await rest.put(f"/v1/phone-numbers/{NUMBER}", {"waba_id": "1"})

    code, hint = await doctor(up.env_file.parents[1], "headrace doctor")
    assert code == 1
    assert len(hint.splitlines()) == 1
    line = hint[hint.index("(. ") :]
    code, shown = await doctor(up.env_file.parents[1], line)

    assert code == 0, shown
    assert "does not expire" in shown
    assert await ended(process, signal.SIGINT) == (0, "")
    assert not settings.exists()


async def test_webhooks_of_the_simulator_arrive(up: Up, folder: Path) -> None:
    _, told = await up.ready()
    people = folder / "people.csv"
    people.write_text("phone,name\n+447400123456,Ada\n")
    async with Rest.open(told["HEADRACE_URL"], told["HEADRACE_KEY"]) as rest:
        await rest.put(f"/v1/phone-numbers/{NUMBER}", {"waba_id": "1"})
        draft = {"name": "Heard", "phone_number_id": NUMBER, "template": TEMPLATE}
        path = f"/v1/campaigns/{(await rest.post('/v1/campaigns', draft))['id']}"
        await rest.upload(path.rpartition("/")[2], people)
        await rest.post(f"{path}/start")

        async def heard() -> bool:
            counts = (await rest.get(path))["counts"]
            return any(counts.get(status) for status in ("sent", "delivered", "read"))

        await until(heard, 30)


async def test_a_second_start_says_so_and_a_taken_port_is_no_trouble(up: Up) -> None:
    with contextlib.ExitStack() as taken:
        with contextlib.suppress(OSError):  # whoever has it: it is taken
            taken.enter_context(socket.create_server(("127.0.0.1", 8000)))
        first, told = await up.ready()
        port = told["HEADRACE_URL"].rpartition(":")[2]
        assert port != "8000"
        assert f"Port 8000 is taken: the sender listens on {port}" in up.said
        code, complaint = await ended(await up.start())
        assert code == 1
        (line,) = complaint.splitlines()
        assert "runs already" in line
        code, complaint = await ended(await up.start("other-data"))
        assert code == 1
        (line,) = complaint.splitlines()
        assert line.endswith("which runs: start this in another folder")
        async with Rest.open(told["HEADRACE_URL"], told["HEADRACE_KEY"]) as rest:
            assert (await rest.get("/v1/campaigns"))["data"] == []
        assert await ended(first, signal.SIGINT) == (0, "")


@pytest.mark.parametrize("running", [1, 2, 3, 5])
async def test_an_interrupted_start_leaves_nothing_behind(up: Up, running: int) -> None:
    process = await up.start()
    assert await until(lambda: len(children(process.pid)) >= running, 60)
    code, complaint = await ended(process, signal.SIGINT)
    assert (code, complaint) in {(130, ""), (0, "")}
    assert not up.env_file.exists()


@pytest.mark.parametrize("part", ["valkey-server", "services.ingest.app"])
async def test_when_a_part_ends_by_itself_all_end_and_it_is_named(up: Up, part: str) -> None:
    process, _ = await up.ready()
    os.kill(started_with(process, part), signal.SIGKILL)
    code, complaint = await ended(process)
    assert code == 1
    name = part.removeprefix("services.").partition("-")[0].partition(".")[0]
    assert complaint.startswith(f"headrace: {name} ended with status -9")
