"""The sender process: starts its parts in order, stops them in reverse, and says what was left."""

import asyncio
import gc
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import structlog
from fastapi import FastAPI
from redis.asyncio import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.api.keys import ensure_admin_key
from services.sender.api.routes import install_routes
from services.sender.orchestration.loops import loops
from services.sender.pipeline.bucket import Bucket
from services.sender.pipeline.crew import Crew
from services.sender.pipeline.desk import Bounds
from services.sender.pipeline.live import Live
from services.sender.pipeline.recorder import Recorder
from services.sender.pipeline.send import Outlet
from services.sender.pipeline.sending import MakeSending, Sending
from services.sender.pipeline.transport import AiohttpTransport
from services.sender.runtime import Runtime
from services.sender.settings import Role, SenderSettings
from shared.db.engine import create_engine
from shared.db.faults import DatabaseFault
from shared.db.installation import Installation
from shared.db.notices import listen
from shared.periodic import describe, every
from shared.redis import create_redis
from shared.settings import SettingsError
from shared.signals import on_terminate
from shared.telemetry.logs import configure
from shared.web import install_web

log = structlog.get_logger()

_AWAY_S = 2.0
_RECORD_S = 0.5
# With three seconds for open requests and three for claims, below the half minute that
# orchestrators give a process after SIGTERM.
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
    app.state.opened = None
    install_web(app, partial(_unready, app))
    if Role.API in settings.roles:
        install_routes(app)
    return app


@dataclass(frozen=True, slots=True)
class _Opened:
    runtime: Runtime
    keyed: asyncio.Task[None]


@asynccontextmanager
async def _lifespan(
    settings: SenderSettings, app: FastAPI
) -> AsyncGenerator[dict[str, Runtime | Live]]:
    """Start in order, stop in reverse. The database may be away at the start: it is waited for."""
    async with AsyncExitStack() as stack:
        # Two pools: a burst of API calls must not keep claims waiting for a connection.
        engine, pipeline_engine = _engine(settings, stack), _engine(settings, stack)
        redis = create_redis(settings.redis_url.get_secret_value())
        stack.push_async_callback(redis.aclose)
        runtime = Runtime(settings, engine, redis)
        state: dict[str, Runtime | Live] = {"runtime": runtime}
        if Role.ORCHESTRATOR in settings.roles:
            await stack.enter_async_context(_orchestrator(settings, pipeline_engine))
        way_out = await stack.enter_async_context(_way_out(settings, pipeline_engine))
        if Role.API in settings.roles:
            live = Live(engine, redis, way_out.outlet, way_out.recorder, settings)
            state["live"] = live
            stack.push_async_callback(_drain_live, live)
            on_terminate(live.stop)
        if Role.WORKER in settings.roles:
            crew = await stack.enter_async_context(
                _workers(settings, pipeline_engine, redis, way_out)
            )
            on_terminate(crew.stop)
        keyed = asyncio.create_task(_make_admin_key(runtime))
        stack.push_async_callback(_cancel, [keyed])
        app.state.opened = _Opened(runtime, keyed)
        stack.callback(setattr, app.state, "opened", None)
        on_terminate(partial(setattr, app.state, "opened", None))
        # What is there now stays: the collector need not look at it again at every message.
        gc.freeze()
        allowed = settings.allowed_recipients
        log.info(
            "sender_started",
            roles=sorted(settings.roles),
            allowed_recipients="all" if allowed is None else len(allowed),
        )
        yield state
    log.info("sender_stopped")


def _engine(settings: SenderSettings, stack: AsyncExitStack) -> AsyncEngine:
    engine = create_engine(settings.database_url.get_secret_value(), pgbouncer=settings.pgbouncer)
    stack.push_async_callback(engine.dispose)
    return engine


async def _make_admin_key(runtime: Runtime) -> None:
    while True:
        try:
            return await ensure_admin_key(runtime.engine, runtime.settings)
        except DatabaseFault as error:
            log.warning("database_away", **describe(error))
            await asyncio.sleep(_AWAY_S)


async def _unready(app: FastAPI) -> str | None:
    """Ready means: not draining, and Postgres answers. Redis may be away: then nothing is sent."""
    opened: _Opened | None = app.state.opened
    if opened is None:
        return "starting or draining"
    try:
        async with asyncio.timeout(2), opened.runtime.engine.connect() as connection:
            await connection.execute(text("SELECT 1"))
    except DatabaseFault:
        return "the database does not answer"
    return None if opened.keyed.done() else "starting"


@asynccontextmanager
async def _orchestrator(settings: SenderSettings, engine: AsyncEngine) -> AsyncGenerator[None]:
    tasks = [
        asyncio.create_task(every(seconds, step, name=name))
        for name, (seconds, step) in loops(engine, settings).items()
    ]
    try:
        yield
    finally:
        await _cancel(tasks)


@dataclass(frozen=True, slots=True)
class _WayOut:
    """What campaigns and live messages leave by, and what takes their results."""

    outlet: Outlet
    recorder: Recorder


@asynccontextmanager
async def _way_out(settings: SenderSettings, engine: AsyncEngine) -> AsyncGenerator[_WayOut]:
    """Closed last of all: it writes what the drains before it still had to tell."""
    transport = AiohttpTransport()
    outlet = Outlet(
        transport,
        settings.graph_url,
        settings.graph_version,
        connect_timeout=settings.connect_timeout_s,
        read_timeout=settings.read_timeout_s,
    )
    recorder = Recorder(engine)
    recording = asyncio.create_task(every(_RECORD_S, recorder.step, name="recorder"))
    try:
        yield _WayOut(outlet, recorder)
    finally:
        await _flush(recorder)
        await _cancel([recording])
        await transport.aclose()
        log.info("results_flushed", unwritten=recorder.waiting)


@asynccontextmanager
async def _workers(
    settings: SenderSettings, engine: AsyncEngine, redis: Redis, way_out: _WayOut
) -> AsyncGenerator[Crew]:
    crew = Crew(
        engine,
        redis,
        _sendings(settings, way_out),
        settings.token_for,
        installation=Installation(engine, settings.installation),
        bounds=Bounds(settings.lease_s, settings.allowed_recipients),
    )
    await crew.beat()
    looking = [
        asyncio.create_task(every(0, crew.refresh_in_time, name="roster")),
        asyncio.create_task(every(0, crew.beat_in_time, name="pulse")),
    ]
    if not settings.pgbouncer:
        hear = partial(listen, settings.database_url.get_secret_value(), crew.wake)
        looking.append(asyncio.create_task(every(_AWAY_S, hear, name="notices")))
    try:
        yield crew
    finally:
        await _cancel(looking)
        cut = await crew.drain(_WIRE_S)
        log.info("workers_drained", cut_off=cut)


async def _drain_live(live: Live) -> None:
    """After the workers: its time runs from the same moment as theirs."""
    cut = await live.drain(_WIRE_S)
    log.info("live_drained", cut_off=cut)


def _sendings(settings: SenderSettings, way_out: _WayOut) -> MakeSending:
    def make(number: str, bucket: Bucket, installation: str) -> Sending:
        return Sending(
            number,
            way_out.outlet,
            way_out.recorder,
            bucket,
            installation=installation,
            concurrency=settings.concurrency,
        )

    return make


async def _flush(recorder: Recorder) -> None:
    try:
        await asyncio.wait_for(recorder.flush(), _FLUSH_S)
    except TimeoutError:
        log.warning("results_not_written", results=recorder.waiting)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
