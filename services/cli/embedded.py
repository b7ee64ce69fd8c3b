"""Real Postgres and Valkey servers from wheels, for the demo, local work and tests."""

import contextlib
import errno
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from services.cli.folders import OWN, Folders, lock, make_folders, own, remove, server_user
from services.cli.interrupts import undisturbed
from services.cli.leash import Child, Program, start
from services.cli.wheels import EmbeddedError, postgres_programs, valkey_server

# Cold on a slow, loaded machine; a start takes half a second otherwise.
START_SECONDS = 60.0
POSTGRES_STOP = ((signal.SIGINT, 15.0), (signal.SIGQUIT, 5.0))
# A SIGTERM during Valkey's first rewrite of its file is lost: the second one works.
VALKEY_STOP = ((signal.SIGTERM, 2.0), (signal.SIGTERM, 5.0))

# What a server says before its end.
FATAL = ("fatal", "panic", "error")
FULL = os.strerror(errno.ENOSPC)

INITDB = (
    *("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"),
    *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-instructions"),
)
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "port": "5432",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "io_method": "sync",  # the io workers of 18 are more processes and no gain at this size
    "autovacuum_naptime": "10s",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class EmbeddedServers:
    """Both servers, on unix sockets only. Start them from the main thread (`leash`).

    Without `durable` a killed Postgres may lose what it has confirmed: for tests of crashes and for
    benchmarks turn it on. Without a `base` all data is gone after the stop.
    """

    def __init__(self, base: Path | None = None, *, durable: bool = False) -> None:
        self._wanted_base = base
        self._durable = durable
        self._folders: Folders | None = None
        self._lock: int | None = None
        self._postgres: Child | None = None
        self._valkey: Child | None = None

    def start(self) -> Self:
        try:
            self._folders = make_folders(self._wanted_base)
            self._lock = self._sole_owner()
            self.start_valkey(wait=False)
            self.start_postgres()
            self._wait_for_valkey()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop both, then forget them; safe to call twice."""
        with undisturbed(), contextlib.ExitStack() as steps:
            steps.callback(self._forget)
            steps.callback(self.stop_valkey)
            steps.callback(self.stop_postgres)

    def check(self) -> None:
        """Raises when one of them has ended by itself."""
        for name, child in (("postgres", self._postgres), ("valkey", self._valkey)):
            if child and child.poll() is not None:
                raise EmbeddedError(_last_words(name, child, self.base / f"{name}.log"))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def database_url(self, name: str = "postgres") -> str:
        return f"postgresql://postgres@/{name}?host={self._open.sockets}&port=5432"

    @property
    def redis_url(self) -> str:
        return f"unix://{self._valkey_socket}?db=0"

    @property
    def base(self) -> Path:
        return self._open.base

    @property
    def postgres_pid(self) -> int:
        return _running(self._postgres, "Postgres").pid

    @property
    def valkey_pid(self) -> int:
        return _running(self._valkey, "Valkey").pid

    def start_postgres(self) -> None:
        programs, held = postgres_programs(), self._after_predecessor("postgres.lock")
        try:
            if not self._open.data.exists():
                self._make_cluster(programs, held)
            # Nobody holds the lock, so what a killed server left behind belongs to no living one.
            (self._open.data / "postmaster.pid").unlink(missing_ok=True)
            self._postgres = self._spawn(
                self._postgres_command(programs), "postgres.log", signal.SIGINT, held
            )
        finally:
            os.close(held)
        _wait(self._postgres, self._postgres_is_ready, self.base / "postgres.log")

    def stop_postgres(self) -> None:
        if self._postgres:
            self._postgres.stop(*POSTGRES_STOP)
            self._postgres = None

    def kill_postgres(self) -> None:
        """As a crash does it: no checkpoint, no goodbye to the clients."""
        _running(self._postgres, "Postgres").kill()
        self._postgres = None

    def start_valkey(self, *, wait: bool = True) -> None:
        held = self._after_predecessor("valkey.lock")
        try:
            self._valkey_socket.unlink(missing_ok=True)
            self._valkey = self._spawn(self._valkey_command(), "valkey.log", signal.SIGTERM, held)
        finally:
            os.close(held)
        if wait:
            self._wait_for_valkey()

    def stop_valkey(self) -> None:
        if self._valkey:
            self._valkey.stop(*VALKEY_STOP)
            self._valkey = None

    def kill_valkey(self) -> None:
        _running(self._valkey, "Valkey").kill()
        self._valkey = None

    @property
    def _open(self) -> Folders:
        if self._folders is None:
            raise EmbeddedError("the embedded servers are not started")
        return self._folders

    @property
    def _valkey_socket(self) -> Path:
        return self._open.sockets / "valkey.sock"

    def _sole_owner(self) -> int:
        held = lock(self.base / "lock", seconds=0)
        if held is None:
            message = f"another process is running the servers in {self.base}: stop it first"
            raise EmbeddedError(message)
        return held

    def _after_predecessor(self, name: str) -> int:
        """A lock that the server inherits, so it is free when the last of its processes has ended.

        Servers of a starter that was killed may still be busy with their shutdown.
        """
        held = lock(self.base / name, START_SECONDS / 2)
        if held is None:
            message = f"an earlier server in {self.base} does not end: stop it, or choose a folder"
            raise EmbeddedError(message)
        return held

    def _spawn(
        self, argv: Sequence[str | Path], log: str, orphan_signal: signal.Signals, held: int
    ) -> Child:
        program = Program(
            argv=argv,
            log=self.base / log,
            env=_environment(),
            orphan_signal=orphan_signal,
            cwd=self._open.sockets,
            user=server_user(),
            keep_fds=(held,),
        )
        return start(program)

    def _make_cluster(self, programs: Path, held: int) -> None:
        """In a folder of another name, so that one cut short is never taken for a whole one."""
        fresh = self._open.data.with_name("pg.new")
        shutil.rmtree(fresh, ignore_errors=True)
        own(fresh, server_user())
        sync = () if self._durable else ("--no-sync",)
        argv = [programs / "initdb", f"--pgdata={fresh}", *INITDB, *sync]
        child = self._spawn(argv, "initdb.log", signal.SIGTERM, held)
        try:
            if child.wait(START_SECONDS) != 0:
                raise EmbeddedError(_last_words("initdb", child, self.base / "initdb.log"))
        finally:
            child.kill()
        fresh.rename(self._open.data)

    def _postgres_command(self, programs: Path) -> list[str | Path]:
        safe = "on" if self._durable else "off"
        settings = SETTINGS | {
            "unix_socket_directories": str(self._open.sockets),
            "fsync": safe,
            "full_page_writes": safe,
            "synchronous_commit": safe,
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [programs / "postgres", "-D", self._open.data, *options]

    def _valkey_command(self) -> list[str | Path]:
        listen = [
            "--port",
            "0",
            "--unixsocket",
            str(self._valkey_socket),
            "--unixsocketperm",
            "700",
        ]
        keep_nothing = ["--save", "", "--appendonly", "no", "--daemonize", "no"]
        return [valkey_server(), *listen, *keep_nothing]

    def _postgres_is_ready(self) -> bool:
        """Line 8 of its pid file says so."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self._open.data / "postmaster.pid").read_text().splitlines()
            return len(lines) > 7 and lines[7].strip() == "ready"
        return False

    def _wait_for_valkey(self) -> None:
        child = _running(self._valkey, "Valkey")
        _wait(child, lambda: _answers(self._valkey_socket), self.base / "valkey.log")

    def _forget(self) -> None:
        """Remove only what is ours: without the lock, the folders belong to another process."""
        if self._folders and (self._folders.temporary or self._lock is not None):
            remove(self._folders)
        if self._lock is not None:
            os.close(self._lock)
        self._folders = self._lock = None


def _running(child: Child | None, name: str) -> Child:
    if child is None:
        message = f"{name} is not running"
        raise EmbeddedError(message)
    return child


def _environment() -> dict[str, str]:
    """Nothing of the user's shell may change what the servers do (PGDATA, LD_LIBRARY_PATH)."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "TZ") if name in os.environ}
    return kept | {"LC_ALL": "C", "HOME": "/"}


def _wait(child: Child, is_ready: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while not is_ready():
        if child.poll() is not None:
            raise EmbeddedError(_last_words(log.stem, child, log))
        if time.monotonic() > end:
            message = f"{log.stem} was not ready after {START_SECONDS:.0f} s: see {log}"
            raise EmbeddedError(message)
        time.sleep(0.01)


def _last_words(name: str, child: Child, log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() or [""]
    fatal = [line for line in lines if any(word in line.lower() for word in FATAL)]
    last = (fatal or lines)[-1]
    cure = f"free some space for {log.parent}" if FULL in last else OWN
    return f"{name} ended with status {child.poll()}: {last} ({cure})"


def _answers(path: Path) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        connection.connect(str(path))
        connection.sendall(b"PING\r\n")
        return connection.recv(16).startswith(b"+PONG")
    return False
