"""The database connection pool."""

from typing import Any

from sqlalchemy import URL, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

# A plan that was kept while a table was small would read all of it once an upload has filled it.
_SERVER = {
    "application_name": "headrace",
    "idle_in_transaction_session_timeout": "60000",
    "plan_cache_mode": "force_custom_plan",
}


def create_engine(
    database_url: str, *, pool_size: int = 10, pgbouncer: bool = False
) -> AsyncEngine:
    """Open a pool lazily; `pgbouncer` turns off what a transaction pooler cannot keep.

    `database_url` is `postgresql://user:password@host:port/name`, or with a socket folder
    `postgresql://user@/name?host=/folder&port=5432`.
    """
    options: dict[str, Any] = {"timeout": 5, "command_timeout": 60}
    if pgbouncer:
        options |= {"statement_cache_size": 0, "prepared_statement_cache_size": 0}
    else:
        options |= {"server_settings": _SERVER}
    return create_async_engine(
        _async_url(database_url),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=10,
        pool_pre_ping=False,
        hide_parameters=True,  # an error's text would quote phone numbers
        connect_args=options,
    )


def _async_url(database_url: str) -> URL:
    return make_url(database_url).set(drivername="postgresql+asyncpg")
