"""The database connection pool."""

import itertools
import secrets
from functools import partial
from typing import Any

import structlog
from sqlalchemy import URL, ExceptionContext, event, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from shared.db.faults import sqlstate

log = structlog.get_logger()

#: What to do where a session's settings and prepared statements are lost between transactions.
POOLED = "set HEADRACE_PGBOUNCER=1 for sender and ingest"

_NAME = {"application_name": "headrace"}
# A plan that was kept while a table was small would read all of it once an upload has filled it.
_SERVER = _NAME | {
    "idle_in_transaction_session_timeout": "60000",
    "plan_cache_mode": "force_custom_plan",
}

# No other process has a statement of this name. Through a pooler that nobody told us of, ours is
# then missing, which is seen; under the driver's own names (1, 2, 3) another one would be run.
_OURS = secrets.token_hex(8)
_NAMES = (f"headrace_{_OURS}_{number}" for number in itertools.count(1))

# Of a statement that is not there, and of one that is there already.
_LOST = {"26000", "42P05"}
_REFUSED = "unsupported startup parameter"


def create_engine(
    database_url: str, *, pool_size: int = 10, pgbouncer: bool = False
) -> AsyncEngine:
    """Open a pool lazily; `pgbouncer` turns off what a transaction pooler cannot keep.

    `database_url` is `postgresql://user:password@host:port/name`, or with a socket folder
    `postgresql://user@/name?host=/folder&port=5432`.
    """
    # SQLAlchemy keeps prepared statements itself; the driver's cache would only serve COPY's side.
    options: dict[str, Any] = {"timeout": 5, "command_timeout": 60, "statement_cache_size": 0}
    if pgbouncer:
        options |= {"prepared_statement_cache_size": 0, "server_settings": _NAME}
    else:
        options |= {
            "prepared_statement_name_func": partial(next, _NAMES),
            "server_settings": _SERVER,
        }
    engine = create_async_engine(
        _async_url(database_url),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=10,
        pool_pre_ping=False,
        hide_parameters=True,  # an error's text would quote phone numbers
        connect_args=options,
    )
    event.listen(engine.sync_engine, "handle_error", _tell_of_pooler)
    return engine


def _tell_of_pooler(context: ExceptionContext) -> None:
    error = context.sqlalchemy_exception
    if isinstance(error, DBAPIError) and (sqlstate(error) in _LOST or _REFUSED in str(error.orig)):
        log.error("pooler_not_told_of", cure=POOLED)


def _async_url(database_url: str) -> URL:
    return make_url(database_url).set(drivername="postgresql+asyncpg")
