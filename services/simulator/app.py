"""The simulator's app: sends go straight to their route, everything else through FastAPI."""

import asyncio
import gc
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from services.simulator.control import routes
from services.simulator.request import CATEGORIES
from services.simulator.sends import Sends
from services.simulator.settings import SimulatorSettings
from services.simulator.world import World
from shared.settings import SettingsError
from shared.telemetry.logs import configure


class Front:
    """Keeps routing and dependency injection off the hot path: they cost more than the work."""

    def __init__(self, sends: Sends, rest: ASGIApp) -> None:
        self._sends, self._rest = sends, rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route one ASGI scope."""
        hot = scope["type"] == "http" and scope["method"] == "POST" and _is_send(scope["path"])
        await (self._sends if hot else self._rest)(scope, receive, send)


def create_app() -> Front:
    """Build the app from the environment; a bad setting ends the process with one line."""
    try:
        settings = SimulatorSettings.load()
    except SettingsError as error:
        raise SystemExit(str(error)) from None
    configure(settings.log_format)
    world = World(settings.signing_secret, settings.sim_waba_id, settings.sim_webhook_url)
    token = settings.sim_access_token
    sends = Sends(world, token.get_secret_value() if token else None)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
        _on_terminate(sends.close)
        with _rare_collections():
            yield
        world.delivery.close()

    rest = FastAPI(title="Headrace simulator", lifespan=lifespan)
    rest.include_router(routes(world))
    return Front(sends, rest)


@contextmanager
def _rare_collections() -> Generator[None, None, None]:
    """Collect cycles rarely: there are hardly any, and thousands of waiting statuses to look at."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 20)
    yield
    gc.set_threshold(*before)


def _is_send(path: str) -> bool:
    parts = path.split("/")
    return len(parts) == 4 and parts[3] in CATEGORIES


def _on_terminate(act: Callable[[], None]) -> None:
    """Act on SIGTERM or SIGINT before the server does.

    The server waits for requests under way before it tells its app to stop, and a stalled request
    ends only when the app is told.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        _chain(number, loop, act)


def _chain(number: int, loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    after = signal.getsignal(number)

    def both(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(act)
        if callable(after):
            after(number, frame)

    signal.signal(number, both)
