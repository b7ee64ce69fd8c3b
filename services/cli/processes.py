"""Runs the services as processes of their own, for `headrace demo`, `headrace up` and tests."""

import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from services.cli.leash import Child, Program, start

ROOT = Path(__file__).parents[2]
UVICORN = (
    *("-P", "-m", "uvicorn", "--factory", "--app-dir", str(ROOT), "--no-access-log"),
    *("--loop", "uvloop", "--http", "httptools"),
    # Meta keeps its connections open for a minute; the default of 5 s would close them under it.
    *("--timeout-keep-alive", "75"),
    # A request that never ends must not keep the app from draining.
    *("--timeout-graceful-shutdown", "3"),
)
OF_UVICORN = ("WEB_CONCURRENCY", "FORWARDED_ALLOW_IPS")
START_SECONDS = 30.0
STOP_SECONDS = 35.0
LOG_LINES = 20
BACKLOG = 2048  # uvicorn's own


class ServiceError(RuntimeError):
    """A service did not start; says why, with the end of its log."""


class ServiceProcess:
    """One uvicorn process of one app."""

    def __init__(self, name: str, url: str, log: Path, child: Child) -> None:
        self.name = name
        self.url = url
        self.log = log
        self._child = child

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def poll(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._child.poll()

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until /readyz answers 200; ends early when the process has ended."""
        end = time.monotonic() + seconds
        # One client: each would load the trusted certificates again, which costs more than a look.
        with httpx.Client(base_url=self.url, timeout=2, trust_env=False) as client:
            while not _is_ready(client):
                self.check()
                if time.monotonic() > end:
                    raise ServiceError(self._complaint(f"was not ready after {seconds:g} s"))
                time.sleep(0.02)

    def check(self) -> None:
        """Raises when it has ended."""
        if self.poll() is not None:
            raise ServiceError(self._complaint(f"ended with status {self.poll()}"))

    def stop(self, seconds: float = STOP_SECONDS) -> int:
        """Let it drain; after so many seconds it is killed (the status is then -9)."""
        return self._child.stop((signal.SIGTERM, seconds))

    def kill(self) -> int:
        return self._child.kill()

    def last_lines(self, count: int = LOG_LINES) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])

    def _complaint(self, what: str) -> str:
        return f"{self.name} {what}; the end of {self.log}:\n{self.last_lines()}"


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def start_service(
    name: str, app: str, env: Mapping[str, str], log: Path, port: int = 0
) -> ServiceProcess:
    """Start `app` on loopback with our environment and `env`; call it from the main thread.

    The port (0: any free one) is bound here and handed over, so nobody can take it in between.
    """
    with _bind(name, port) as listener:
        program = Program(
            argv=[sys.executable, *UVICORN, "--fd", str(listener.fileno()), app],
            log=log,
            env={**_shell(), **env},
            orphan_signal=signal.SIGTERM,
            keep_fds=(listener.fileno(),),
        )
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        return ServiceProcess(name, url, log, start(program))


def _shell() -> dict[str, str]:
    """Our environment, without what uvicorn reads: two workers are two simulators."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("UVICORN_") and name not in OF_UVICORN
    }


def free_or_any(port: int) -> int:
    """The port when nobody has it, else 0."""
    try:
        _bind("", port).close()
    except ServiceError:
        return 0
    return port


def _bind(name: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # Only a wished port may be one that fading connections still use: without a wish the kernel
    # could pick what another start has bound a moment ago.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, port != 0)
    try:
        listener.bind(("127.0.0.1", port))
        # For the next start on this port: its connections inherit it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # From here on it is taken: two that are only bound could have the same port.
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        message = f"{name} cannot have port {port}: {error.strerror}"
        raise ServiceError(message) from None
    return listener
