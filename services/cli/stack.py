"""The whole of Headrace on loopback: embedded servers, Meta's simulator, ingest and sender."""

import contextlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from services.cli.embedded import EmbeddedServers
from services.cli.environment import forget_settings
from services.cli.interrupts import undisturbed
from services.cli.own_servers import OwnServers
from services.cli.processes import ServiceProcess, free_or_any, start_service
from shared.db.migrations import upgrade

SENDER, INGEST, SIMULATOR = (
    f"services.{name}.app:create_app" for name in ("sender", "ingest", "simulator")
)
# A sender gives what is on the wire 15 s, and its last results 8 s to be written.
STOP_SECONDS = 32.0


@dataclass(frozen=True, repr=False)
class Secrets:
    """Made anew, unless somebody has kept those of an earlier stack."""

    app_secret: str = field(default_factory=lambda: secrets.token_hex(32))
    verify_token: str = field(default_factory=lambda: secrets.token_hex(16))
    access_token: str = field(default_factory=lambda: secrets.token_hex(32))
    admin_key: str = field(default_factory=lambda: secrets.token_hex(32))


@dataclass(frozen=True)
class Ports:
    """Where the services listen when nobody else does; 0 is any free port."""

    sender: int = 0
    ingest: int = 0
    simulator: int = 0


class Stack:
    """Starts in the order of need, stops in reverse. Use it in the main thread (`leash`).

    `tuning` are more settings of the sender. Logs go to `logs`. Without `servers` it has its own.
    """

    def __init__(
        self,
        logs: Path,
        tuning: Mapping[str, str] | None = None,
        servers: EmbeddedServers | OwnServers | None = None,
        kept: Secrets | None = None,
        ports: Ports | None = None,
    ) -> None:
        self.secrets = kept or Secrets()
        self._ports = ports or Ports()
        self._logs = logs
        self._tuning = dict(tuning or {})
        self._open = contextlib.ExitStack()
        self.started: list[ServiceProcess] = []
        self.servers = servers or EmbeddedServers(durable=True)

    def __enter__(self) -> Self:
        forget_settings()
        try:
            self._open.enter_context(self.servers)
            upgrade(self.database_url)
            self.ingest = self.start_ingest(free_or_any(self._ports.ingest))
            self.simulator = self.start_simulator()
            self.sender = self.start_sender(free_or_any(self._ports.sender))
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        with undisturbed():
            self._open.close()

    @property
    def database_url(self) -> str:
        return self.servers.database_url()

    @property
    def webhook_url(self) -> str:
        return f"{self.ingest.url}/webhooks/whatsapp"

    def check(self) -> None:
        """Raises when a service has ended by itself."""
        for process in self.started:
            process.check()

    def start_simulator(self) -> ServiceProcess:
        return self._start(
            "simulator",
            SIMULATOR,
            {
                "HEADRACE_APP_SECRETS": self.secrets.app_secret,
                "HEADRACE_SIM_ACCESS_TOKEN": self.secrets.access_token,
                "HEADRACE_SIM_WEBHOOK_URL": self.webhook_url,
            },
            free_or_any(self._ports.simulator),
        )

    def start_ingest(self, port: int = 0, *, wait: bool = True) -> ServiceProcess:
        """It holds no token of Meta's. With a `port`, webhooks find it where it was before."""
        return self._start(
            "ingest",
            INGEST,
            {
                "DATABASE_URL": self.database_url,
                "HEADRACE_APP_SECRETS": self.secrets.app_secret,
                "HEADRACE_VERIFY_TOKEN": self.secrets.verify_token,
            },
            port,
            wait=wait,
        )

    def start_sender(
        self, port: int = 0, more: Mapping[str, str] | None = None, *, wait: bool = True
    ) -> ServiceProcess:
        """One more sender, beside those that run; `more` are settings of its own."""
        return self._start(
            "sender",
            SENDER,
            {**self.sender_settings, **(more or {})},
            port,
            wait=wait,
        )

    @property
    def sender_settings(self) -> dict[str, str]:
        return {
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.servers.redis_url,
            "HEADRACE_GRAPH_URL": self.simulator.url,
            "HEADRACE_ACCESS_TOKEN": self.secrets.access_token,
            "HEADRACE_ADMIN_KEY": self.secrets.admin_key,
            **self._tuning,
        }

    def _start(
        self, name: str, app: str, env: Mapping[str, str], port: int = 0, *, wait: bool = True
    ) -> ServiceProcess:
        log = self._logs / f"{len(self.started) + 1}-{name}.log"
        process = start_service(name, app, env, log, port)
        self._open.callback(process.stop, STOP_SECONDS)
        self.started.append(process)
        if wait:
            process.wait_ready()
        return process
