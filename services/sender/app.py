"""The sender process: starts its parts in order, stops them in reverse, and says what was left."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import structlog
from fastapi import FastAPI
from sqlalchemy import text

from services.sender.api.keys import ensure_admin_key
from services.sender.api.routes import install_routes
from services.sender.orchestration.loops import loops
from services.sender.pipeline.bucket import Bucket
from services.sender.pipeline.crew import Crew
from services.sender.pipeline.recorder import Recorder
from services.sender.pipeline.send import Outlet
from services.sender.pipeline.sending import Sending
from services.sender.pipeline.transport import AiohttpTransport
from services.sender.runtime import Runtime
from services.sender.settings import Role, SenderSettings
from shared.db.engine import create_engine
from shared.db.faults import DatabaseFault
from shared.db.installation import read_installation
from shared.periodic import every
from shared.redis import create_redis
from shared.settings import SettingsError
from shared.telemetry.logs import configure
from shared.web import install_web

log = structlog.get_logger()

_ROSTER_S = 0.5
# Together below the half minute that orchestrators give a process after SIGTERM.
_WIRE_S = 15.0
_FLUSH_S = 8.0


def create_app() -> FastAPI:
    """Build the app from the environment; a bad setting ends the process with one line."""
    try:
        settings = SenderSettings.load()
    except SettingsError as error:
        sys.exit(str(error))
    configure(settings.log_format)
    app = FastAPI(title="Headrace", lifespan=partial(_lifespan, settings))
    install_web(app, partial(_unready, app))
    install_routes(app)
    return app


@asynccontextmanager
async def _lifespan(settings: SenderSettings, app: FastAPI) -> AsyncGenerator[dict[str, Runtime]]:
    async with AsyncExitStack() as stack:
        engine = create_engine(
            settings.database_url.get_secret_value(), pgbouncer=settings.pgbouncer
        )
        stack.push_async_callback(engine.dispose)
        redis = create_redis(settings.redis_url.get_secret_value())
        stack.push_async_callback(redis.aclose)
        runtime = Runtime(settings, engine, redis)
        await ensure_admin_key(engine, settings)
        if Role.ORCHESTRATOR in settings.roles:
            await stack.enter_async_context(_orchestrator(runtime))
        if Role.WORKER in settings.roles:
            await stack.enter_async_context(_workers(runtime))
        app.state.runtime = runtime
        stack.callback(setattr, app.state, "runtime", None)
        log.info("sender_started", roles=sorted(settings.roles))
        yield {"runtime": runtime}
    log.info("sender_stopped")


async def _unready(app: FastAPI) -> str | None:
    """Ready means: not draining, and Postgres answers. Redis may be away: then nothing is sent."""
    runtime: Runtime | None = getattr(app.state, "runtime", None)
    if runtime is None:
        return "starting or draining"
    try:
        async with asyncio.timeout(2), runtime.engine.connect() as connection:
            await connection.execute(text("SELECT 1"))
    except DatabaseFault:
        return "the database does not answer"
    return None


@asynccontextmanager
async def _orchestrator(runtime: Runtime) -> AsyncGenerator[None]:
    tasks = [
        asyncio.create_task(every(seconds, step, name=name))
        for name, (seconds, step) in loops(runtime.engine, runtime.settings.lease_s).items()
    ]
    try:
        yield
    finally:
        await _cancel(tasks)


@asynccontextmanager
async def _workers(runtime: Runtime) -> AsyncGenerator[None]:
    settings = runtime.settings
    transport = AiohttpTransport()
    outlet = Outlet(
        transport,
        settings.graph_url,
        settings.graph_version,
        connect_timeout=settings.connect_timeout_s,
        read_timeout=settings.read_timeout_s,
    )
    recorder = Recorder(runtime.engine)
    installation = await read_installation(runtime.engine)

    def make_sending(number: str, bucket: Bucket) -> Sending:
        return Sending(
            number,
            outlet,
            recorder,
            bucket,
            installation=installation,
            concurrency=settings.concurrency,
        )

    crew = Crew(runtime.engine, runtime.redis, make_sending, settings.token_for, settings.lease_s)
    recording = asyncio.create_task(recorder.run())
    refreshing = asyncio.create_task(every(_ROSTER_S, crew.refresh, name="roster"))
    try:
        yield
    finally:
        await _cancel([refreshing])
        cut = await crew.drain(_WIRE_S)
        try:
            await asyncio.wait_for(recorder.flush(), _FLUSH_S)
        except TimeoutError:
            log.warning("results_not_written", results=recorder.waiting)
        await _cancel([recording])
        await transport.aclose()
        log.info("workers_drained", cut_off=cut, unwritten=recorder.waiting)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
