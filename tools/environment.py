"""Makes .venv from the locked requirements, or repairs it; tools/setup.sh chooses the Python."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = ROOT / "requirements-dev.txt"
LOG = VENV / "setup.log"
# Written last: an environment without it was interrupted and is made again.
STAMP = VENV / ".ready"

# Longer than the slowest install seen, so that two terminals may run make at the same time.
PATIENCE_S = 900
# pip ends at once when it is told to; what does not is no reason to hang.
STOP_S = 10
FULL = os.strerror(errno.ENOSPC)
ROOM = "free about 1 GB where .venv and temporary files lie, then again"
MACHINES = ("x86_64", "aarch64", "arm64", "armv7l")


class SetupError(Exception):
    """One line for the person at the terminal, with the cure."""


def wanted() -> str:
    """What a finished .venv was made from; the place too, since its scripts hold absolute paths."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    installed = json.dumps([project["project"], project["tool"]["setuptools"]], sort_keys=True)
    digest = hashlib.sha256(REQUIREMENTS.read_bytes() + installed.encode())
    return f"{digest.hexdigest()} {python_version()} {VENV}\n"


def python_version() -> str:
    return "{}.{}".format(*sys.version_info)


def stamped() -> str:
    """What .venv was made from; nothing when a part of it is gone that was there at its end."""
    lines = STAMP.read_text(encoding="utf-8").splitlines(keepends=True) if STAMP.is_file() else []
    made_from, parts = "".join(lines[:1]), (line.rstrip("\n") for line in lines[1:])
    return made_from if all((VENV / part).exists() for part in parts) else ""


def parts() -> str:
    """Programs and the records of packages: cheap to look for, and what pip removes."""
    found = [*VENV.glob("bin/*"), *VENV.glob("lib/python*/site-packages/*.dist-info")]
    return "".join(f"{path.relative_to(VENV)}\n" for path in sorted(found))


def check_platform(system: str, machine: str, libc: str) -> None:
    """The embedded servers are wheels; where there is none, pip's own answer would be a riddle."""
    if machine not in MACHINES:
        raise SetupError(f"no embedded servers for {machine}: use x86_64 or arm64")
    if system == "linux" and libc != "glibc":
        raise SetupError("no embedded servers for musl (Alpine): use a glibc system, e.g. Debian")


@contextlib.contextmanager
def alone() -> Iterator[None]:
    with REQUIREMENTS.open("rb") as held:
        wait_for(held.fileno())
        # What is started inherits it: a pip whose starter was killed still writes into .venv.
        fcntl.fcntl(held, fcntl.F_SETFD, 0)
        yield


def wait_for(descriptor: int) -> None:
    if locked(descriptor):
        return
    print("Waiting for another make that is setting up .venv", flush=True)
    deadline = time.monotonic() + PATIENCE_S
    while not locked(descriptor):
        if time.monotonic() > deadline:
            raise SetupError("another setup still holds .venv: end it, then run this again")
        time.sleep(0.2)


def locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def make() -> None:
    if not usable():
        print(f"Making .venv with Python {platform.python_version()}", flush=True)
        clear()
        run([sys.executable, "-m", "venv", str(VENV)], "could not make .venv")
    STAMP.unlink(missing_ok=True)
    print("Installing the locked requirements (one to two minutes)", flush=True)
    pip("--require-hashes", "-r", str(REQUIREMENTS))
    pip("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    STAMP.write_text(wanted() + parts(), encoding="utf-8")


def clear() -> None:
    """Empty what an earlier setup made; its log stays, as the sign that one did."""
    if VENV.is_symlink() or (VENV.exists() and not ours()):
        raise SetupError(".venv is not of this setup and stays as it is: move it away, then again")
    VENV.mkdir(exist_ok=True)
    LOG.touch()
    for entry in VENV.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry != LOG:
            entry.unlink()


def ours() -> bool:
    return VENV.is_dir() and (LOG.exists() or STAMP.exists() or not any(VENV.iterdir()))


def usable() -> bool:
    """Once finished, here and with this Python: newer requirements can be installed over it."""
    return stamped().split(" ", 1)[1:] == wanted().split(" ", 1)[1:] and runs()


def runs() -> bool:
    """Its Python may be a link to one that has been removed or replaced."""
    with contextlib.suppress(OSError):
        return subprocess.run([PYTHON, "-c", ""], capture_output=True, check=False).returncode == 0  # noqa: S603
    return False


def pip(*arguments: str) -> None:
    options = ("--disable-pip-version-check", "--no-input", "install")
    run([str(PYTHON), "-m", "pip", *options, *arguments], "pip could not install the requirements")


def run(command: list[str], failure: str) -> None:
    VENV.mkdir(exist_ok=True)
    with subprocess.Popen(  # noqa: S603 - the commands are the three above
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        close_fds=False,
    ) as process:
        try:
            lines = followed(process)
        except BaseException:
            stop(process)
            raise
    LOG.write_text("".join(lines), encoding="utf-8")
    if process.returncode != 0:
        raise SetupError(f"{failure}: {cause(lines)} (all of it: {LOG.relative_to(ROOT)})")


def stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    process.kill()


def followed(process: subprocess.Popen[str]) -> list[str]:
    lines, packages = [], 0
    for line in process.stdout or ():
        lines.append(line)
        if sys.stdout.isatty() and line.startswith("Collecting "):
            packages += 1
            print(f"\r\033[K  {packages}  {line.split()[1]}", end="", flush=True)
    if packages:
        print("\r\033[K", end="")
    return lines


def cause(lines: list[str]) -> str:
    text = "".join(lines)
    if FULL in text:
        return f"the disk is full: {ROOM}"
    if re.search(r"Retrying \(|ProxyError|from versions: none", text):
        return "no package index reached: connect to the network or set PIP_INDEX_URL, then again"
    errors = [line for line in lines if re.match(r"ERROR: (?!Exception:)", line)]
    return (errors or lines or ["no output"])[-1].strip()


def prepare() -> None:
    check_platform(sys.platform, platform.machine(), platform.libc_ver()[0])
    started = time.monotonic()
    with alone():
        if stamped() != wanted() or not runs():
            make()
            print(f"Ready after {time.monotonic() - started:.0f} s", flush=True)


def main() -> int:
    if sys.argv[1:] == ["--is-ready"]:
        return int(stamped() != wanted())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        prepare()
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        cure = f": {ROOM}" if error.errno == errno.ENOSPC else ""
        print(f"setup: {error}{cure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("setup: stopped; the next make starts it again", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
