"""A set-up that was cut short, or damaged later, is mended by the same command."""

import base64
import contextlib
import errno
import hashlib
import os
import runpy
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import pytest
from waiting import until

ROOT = Path(__file__).parents[2]
FULL = os.strerror(errno.ENOSPC)
pytestmark = pytest.mark.timeout(300)
# A whole .venv takes four seconds, on a loaded machine forty.
PATIENCE = 140
METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "headrace"
version = "1.0"
[tool.setuptools]
"""
# As long as there is a `gate`, the build waits at it.
BACKEND = """
import os, shutil

def build_editable(folder, config_settings=None, metadata_directory=None):
    if os.path.exists("gate"):
        open("gate").read()
    return os.path.basename(shutil.copy("../wheels/headrace-1.0-py3-none-any.whl", folder))
"""


def write_wheel(folder: Path, name: str) -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    records = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": "",
        f"{records}/METADATA": METADATA.format(name=name),
        f"{records}/WHEEL": WHEEL,
    }
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        archive.writestr(f"{records}/RECORD", "".join(_record(*one) for one in files.items()))
    return path


def _record(file: str, text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"{file},sha256={digest.rstrip('=')},{len(text)}\n"


class Checkout:
    """A small project with its packages beside it: no network, and no minute to wait."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wheels = folder.with_name("wheels")
        self.wheels.mkdir()
        shutil.copytree(ROOT / "tools", folder / "tools")
        (folder / "pyproject.toml").write_text(PROJECT)
        (folder / "backend.py").write_text(BACKEND)
        write_wheel(self.wheels, "headrace")
        self.require("one")

    def require(self, *names: str) -> None:
        lines = []
        for name in names:
            digest = hashlib.sha256(write_wheel(self.wheels, name).read_bytes()).hexdigest()
            lines.append(f"{name}==1.0 --hash=sha256:{digest}\n")
        (self.folder / "requirements-dev.txt").write_text("".join(lines))

    @property
    def gate(self) -> Path:
        return self.folder / "gate"

    @property
    def stamp(self) -> Path:
        return self.folder / ".venv" / ".ready"

    @property
    def site(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / ".venv" / "lib" / version / "site-packages"

    def begin(self) -> subprocess.Popen[str]:
        return subprocess.Popen(  # noqa: S603 - our own script
            ["/bin/sh", self.folder / "tools" / "setup.sh"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHON": sys.executable,
                "HOME": str(self.folder),
                "PIP_CONFIG_FILE": os.devnull,
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": str(self.wheels),
            },
        )

    def is_ready(self) -> bool:
        ask = [sys.executable, self.folder / "tools" / "environment.py", "--is-ready"]
        return subprocess.run(ask, check=False).returncode == 0  # noqa: S603 - our own script

    def setup(self) -> str:
        """What it says while it succeeds."""
        out, complaint = self.begin().communicate(timeout=PATIENCE)
        assert complaint == ""
        self.check()
        return out

    def check(self) -> None:
        """It is finished and whole."""
        python = self.folder / ".venv" / "bin" / "python"
        subprocess.run([python, "-c", "import one, headrace"], check=True)  # noqa: S603
        assert self.stamp.exists()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "checkout")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """One for all damages: every test leaves it mended."""
    made = Checkout(tmp_path_factory.mktemp("finished") / "checkout")
    assert "Making .venv" in made.setup()
    return made


@pytest.fixture
def begun() -> Generator[Callable[[Checkout], subprocess.Popen[str]]]:
    """Set-ups that may be cut short; what is left of them is killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(checkout: Checkout) -> subprocess.Popen[str]:
        started.append(checkout.begin())
        return started[-1]

    yield begin
    for process in started:
        if _any_left(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _any_left(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_finished_one_is_left_alone(finished: Checkout) -> None:
    before = finished.stamp.stat().st_mtime_ns
    assert finished.setup() == ""
    assert finished.stamp.stat().st_mtime_ns == before


async def test_one_killed_while_the_venv_is_made_is_made_again(checkout: Checkout, begun) -> None:
    process = begun(checkout)
    await until((checkout.folder / ".venv" / "bin").exists, PATIENCE)
    os.killpg(process.pid, signal.SIGKILL)

    assert "Making .venv" in checkout.setup()


async def test_the_pip_of_a_killed_one_ends_before_the_next_begins(
    checkout: Checkout, begun
) -> None:
    os.mkfifo(checkout.gate)
    first = begun(checkout)
    waiting = await until(lambda: opened(checkout.gate), PATIENCE)
    first.kill()  # and nothing of what it started
    second = begun(checkout)
    assert second.stdout.readline().startswith("Waiting for another make")

    checkout.gate.unlink()
    os.close(waiting)
    _, complaint = second.communicate(timeout=PATIENCE)

    assert (second.returncode, complaint) == (0, "")
    checkout.check()


def opened(gate: Path) -> int | None:
    """Its writing end, once somebody waits at it."""
    with contextlib.suppress(OSError):
        return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
    return None


async def test_ctrl_c_is_one_line_and_leaves_no_process(checkout: Checkout, begun) -> None:
    os.mkfifo(checkout.gate)
    process = begun(checkout)
    await until((checkout.site / "one.py").exists, PATIENCE)

    os.killpg(process.pid, signal.SIGINT)  # as a terminal does it

    _, complaint = process.communicate(timeout=PATIENCE)
    assert (process.returncode, complaint.count("\n")) == (130, 1)
    assert complaint.startswith("setup: stopped")
    await until(lambda: not _any_left(process.pid))
    assert not checkout.stamp.exists()


def _break_python(checkout: Checkout) -> None:
    python = checkout.folder / ".venv" / "bin" / "python"
    python.unlink()
    python.write_text("#!/bin/sh\nexit 127\n")
    python.chmod(0o755)


def _remove_a_package(checkout: Checkout) -> None:
    shutil.rmtree(checkout.site / "one-1.0.dist-info")
    (checkout.site / "one.py").unlink()


def _move(checkout: Checkout) -> None:
    moved = checkout.folder.with_name("moved")
    checkout.folder.rename(moved)
    checkout.folder = moved


@pytest.mark.parametrize("damage", [_break_python, _remove_a_package, _move])
def test_a_damaged_one_is_made_again(
    finished: Checkout, damage: Callable[[Checkout], None]
) -> None:
    damage(finished)

    assert "Making .venv" in finished.setup()
    assert finished.setup() == ""


@contextlib.contextmanager
def without(path: Path) -> Generator[None]:
    aside = path.with_name(f"{path.name}.aside")
    path.rename(aside)
    yield
    aside.rename(path)


@pytest.mark.parametrize("part", ["bin/python", "bin/pip", ".ready"])
def test_one_that_lacks_a_part_is_not_ready(finished: Checkout, part: str) -> None:
    assert finished.is_ready()
    with without(finished.folder / ".venv" / part):
        assert not finished.is_ready()
    assert finished.is_ready()


@pytest.mark.parametrize("changed", [lambda text: text[:40], lambda text: text.replace("3.", "2.")])
def test_one_with_another_stamp_is_not_ready(
    finished: Checkout, changed: Callable[[str], str]
) -> None:
    whole = finished.stamp.read_text()
    finished.stamp.write_text(changed(whole))
    assert not finished.is_ready()
    finished.stamp.write_text(whole)


def test_new_requirements_are_installed_over_it(finished: Checkout) -> None:
    finished.require("one", "two")

    told = finished.setup()

    assert "Installing" in told
    assert "Making .venv" not in told
    assert (finished.site / "two.py").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_a_full_disk_is_one_line_with_the_cure(finished: Checkout) -> None:
    log = finished.folder / ".venv" / "setup.log"
    log.unlink()
    log.symlink_to("/dev/full")
    finished.require("one", "two", "three")

    out, complaint = finished.begin().communicate(timeout=PATIENCE)

    assert "Installing" in out
    assert complaint.startswith(f"setup: [Errno {errno.ENOSPC}] {FULL}: free about 1 GB")
    assert complaint.count("\n") == 1
    log.unlink()
    log.touch()
    finished.setup()


def environment() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "tools" / "environment.py"))


@pytest.mark.parametrize(
    ("machine", "libc", "words"),
    [("riscv64", "glibc", "use x86_64 or arm64"), ("x86_64", "", "use a glibc system")],
)
def test_a_platform_without_servers_is_named_with_the_cure(
    machine: str, libc: str, words: str
) -> None:
    tool = environment()

    with pytest.raises(tool["SetupError"], match=words):
        tool["check_platform"]("linux", machine, libc)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([f"ERROR: Could not install packages: [Errno 28] {FULL}\n"], "free about 1 GB"),
        (["WARNING: Retrying (Retry(total=0))\n", "ERROR: No match\n"], "connect to the network"),
        (["ERROR: Exception:\n", "Traceback:\n", "KeyError: 'x'\n"], "KeyError"),
        (["ERROR: THESE PACKAGES DO NOT MATCH THE HASHES\n"], "DO NOT MATCH"),
        ([], "no output"),
    ],
)
def test_the_cause_of_a_failed_install_is_found(lines: Iterable[str], words: str) -> None:
    assert words in environment()["cause"](lines)


def _link(checkout: Checkout, elsewhere: Path) -> None:
    (checkout.folder / ".venv").symlink_to(elsewhere)


def _venv_by_hand(checkout: Checkout, elsewhere: Path) -> None:
    elsewhere.rename(checkout.folder / ".venv")


def _file(checkout: Checkout, _: Path) -> None:
    (checkout.folder / ".venv").write_text("mine")


@pytest.mark.parametrize("place", [_link, _venv_by_hand, _file])
def test_what_another_made_is_refused_in_one_line_and_kept(
    checkout: Checkout, tmp_path: Path, place: Callable[[Checkout, Path], None]
) -> None:
    elsewhere = tmp_path / "environment"
    elsewhere.mkdir()
    for name in ("pyvenv.cfg", "notes.txt"):
        (elsewhere / name).write_text("mine")
    place(checkout, elsewhere)

    _, complaint = checkout.begin().communicate(timeout=PATIENCE)

    assert complaint.count("\n") == 1
    assert "move it away" in complaint
    venv = checkout.folder / ".venv"
    kept = venv.iterdir() if venv.is_dir() else [venv]
    assert sorted(path.read_text() for path in kept) == ["mine"] * (2 if venv.is_dir() else 1)
