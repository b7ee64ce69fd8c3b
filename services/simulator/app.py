"""The simulator's app: sends go straight to their route, everything else through FastAPI."""

import gc
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from services.simulator.control import routes
from services.simulator.graph import RefusedError, graph, refused
from services.simulator.request import CATEGORIES
from services.simulator.sends import Sends
from services.simulator.settings import SimulatorSettings
from services.simulator.world import World
from shared.settings import SettingsError
from shared.signals import on_terminate
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
        sys.exit(str(error))
    configure(settings.log_format)
    world = World(settings.signing_secret, settings.sim_waba_id, settings.sim_webhook_url)
    secret = settings.sim_access_token
    token = secret.get_secret_value() if secret else None
    sends = Sends(world, token)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
        on_terminate(sends.close)
        with _rare_collections():
            yield
        world.delivery.close()

    rest = FastAPI(title="Headrace simulator", lifespan=lifespan)
    rest.include_router(routes(world))
    rest.include_router(graph(world, token))
    rest.add_exception_handler(RefusedError, refused)
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
