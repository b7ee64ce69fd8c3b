"""Services as processes of their own, started by a test (the fixture `processes`)."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from services.cli.processes import ServiceProcess, start_service


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def children(pid: int) -> list[int]:
    """Of its main thread: the one that starts programs. None when it has ended."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


class Processes:
    """Starts services for one test; `stop` and `kill` are on what `start` returns."""

    def __init__(self, folder: Path, started: list[ServiceProcess]) -> None:
        self._folder = folder
        self._started = started

    async def start(
        self, name: str, app: str, env: Mapping[str, str], port: int = 0, *, ready: bool = True
    ) -> ServiceProcess:
        log = self._folder / f"{len(self._started)}-{name}.log"
        process = start_service(name, app, env, log, port)
        self._started.append(process)
        if ready:
            await asyncio.to_thread(process.wait_ready)
        return process
