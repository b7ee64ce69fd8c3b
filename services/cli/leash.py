"""Starts programs that end when this process ends, however it ends.

The module is also the script that runs between the starter and the program: it leaves root, asks
the kernel for a signal at the starter's death and becomes the program. A `preexec_fn` could do the
same, but is unsafe, and from Python 3.12 on a warning, in a process with threads.
"""

import contextlib
import ctypes
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG = 1
# Linux tells the program by a signal; elsewhere a watcher waits for the end of a pipe.
KERNEL, PIPE = "kernel", "pipe"
MODE = KERNEL if sys.platform == "linux" else PIPE
# Longer than a fast shutdown of Postgres with a full cache takes.
ORPHAN_GRACE = 15.0


class LeashError(RuntimeError):
    """A program could not be started so that it ends with us."""


@dataclass(frozen=True)
class Program:
    argv: Sequence[str | Path]
    log: Path
    env: Mapping[str, str]
    orphan_signal: signal.Signals
    cwd: Path | None = None
    user: str | None = None
    keep_fds: tuple[int, ...] = ()


class Child:
    """A running program; its pid is that of the program itself."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self, seconds: float) -> int:
        return self._process.wait(seconds)

    def stop(self, *steps: tuple[signal.Signals, float]) -> int:
        """Send each signal and wait its seconds; kill what is still there after the last."""
        for number, seconds in steps:
            self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
                break
        return self.kill()

    def kill(self) -> int:
        self._process.kill()
        status = self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()
        return status


def start(program: Program) -> Child:
    """Start in an own session: Ctrl-C reaches only the starter, which then stops in order."""
    if threading.current_thread() is not threading.main_thread():
        # The kernel's signal comes at the end of the starting thread, not of the process.
        message = f"{program.argv[0]} must be started from the main thread"
        raise LeashError(message)
    with open(program.log, "ab", opener=_for_us_alone) as log:
        process = subprocess.Popen(  # noqa: S603 -- an argv of our own making, no shell
            _command(program),
            cwd=program.cwd,
            env=dict(program.env),
            stdin=subprocess.PIPE if MODE == PIPE else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=program.keep_fds,
        )
    return Child(process)


def _for_us_alone(path: str, flags: int) -> int:
    """A server's log may quote the rows of a statement that failed."""
    return os.open(path, flags, 0o600)


def _command(program: Program) -> list[str | Path]:
    mode = [MODE, str(int(program.orphan_signal)), str(os.getpid()), program.user or ""]
    # -I and -S: only the standard library, and a third of the start-up time.
    return [sys.executable, "-I", "-S", __file__, *mode, *program.argv]


def _leave_root(user: str) -> None:
    account = pwd.getpwnam(user)
    try:
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    except PermissionError as refusal:
        sys.exit(f"root cannot become {user}: {refusal.strerror}")


def _ask_the_kernel(number: int, starter: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != starter:  # it ended before the kernel knew of our wish
        os._exit(1)


def _leave_a_watcher(number: int) -> None:
    """Fork twice: a program may be confused by a child that it did not start."""
    program = os.getpid()
    if middle := os.fork():
        os.waitpid(middle, 0)
        devnull = os.open(os.devnull, os.O_RDONLY)
        os.dup2(devnull, 0)
        return
    if os.fork():
        os._exit(0)
    os.closerange(1, 256)  # the log, and locks that must not outlive the program
    _watch(program, number)


def _watch(program: int, number: int) -> NoReturn:
    while os.read(0, 1):
        pass
    with contextlib.suppress(ProcessLookupError):
        # Twice, since Valkey may miss the first; then for good.
        for step in (number, number, signal.SIGKILL):
            os.kill(program, step)
            _wait_for_end(program, ORPHAN_GRACE / 2)
    os._exit(0)


def _wait_for_end(pid: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        os.kill(pid, 0)
        time.sleep(0.05)


def _become(mode: str, number: int, starter: int, user: str, argv: list[str]) -> NoReturn:
    if user:
        _leave_root(user)  # first: the kernel forgets the wish when the uid changes
    if mode == KERNEL:
        _ask_the_kernel(number, starter)
    else:
        _leave_a_watcher(number)
    # Python ignores these two; the program must not inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.execv(argv[0], argv)  # noqa: S606 -- becoming the given program is the purpose


if __name__ == "__main__":
    _become(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:])
