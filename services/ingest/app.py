"""The ingest service: what is open while it runs, started in order and stopped in reverse."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator
from functools import partial

import structlog
from fastapi import FastAPI
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.ingest.loops import loops
from services.ingest.persist import GroupCommit
from services.ingest.receive import WebhookDoor, handshake_router
from services.ingest.settings import IngestSettings
from shared.db.engine import create_engine
from shared.db.faults import DatabaseFault
from shared.settings import SettingsError
from shared.telemetry.logs import configure
from shared.web import install_web

log = structlog.get_logger()

_READY_SECONDS = 2.0


def create_app() -> WebhookDoor:
    """Build the app from the environment; a bad setting ends the process with one line."""
    try:
        settings = IngestSettings.load()
    except SettingsError as error:
        sys.exit(str(error))
    configure(settings.log_format)
    return build_app(settings)


def build_app(settings: IngestSettings) -> WebhookDoor:
    """An app with its own pool and inbox; nothing is opened before its lifespan starts.

    The database may be away at the start: webhooks are answered 503 until it is there.
    """
    engine = create_engine(settings.database_url.get_secret_value(), pgbouncer=settings.pgbouncer)
    inbox = GroupCommit(engine)
    app = FastAPI(
        title="Headrace ingest",
        lifespan=partial(_lifespan, settings, engine, inbox),
        # It faces the internet, where nobody needs a description of it.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    install_web(app, partial(_missing, engine, inbox))
    app.include_router(handshake_router(settings.verify_token.get_secret_value()))
    return WebhookDoor(app, settings.secrets, inbox)


@contextlib.asynccontextmanager
async def _lifespan(
    settings: IngestSettings, engine: AsyncEngine, inbox: GroupCommit, _: FastAPI
) -> AsyncGenerator[None, None]:
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(engine.dispose)
        running = [
            asyncio.create_task(loop)
            for loop in loops(engine, inbox.arrived, settings.installation)
        ]
        stack.push_async_callback(_cancel, running)
        stack.push_async_callback(inbox.close)
        log.info("ingest_started")
        yield
    log.info("ingest_stopped")


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=5)


async def _missing(engine: AsyncEngine, inbox: GroupCommit) -> str | None:
    if not inbox.accepts:
        return "the inbox takes no webhooks"
    try:
        async with asyncio.timeout(_READY_SECONDS), engine.connect() as connection:
            await connection.execute(text("SELECT FROM webhook_pending LIMIT 1"))
    except DatabaseFault:
        return "the database does not answer"
    return None
