"""Runs migrations on DATABASE_URL, or on the URL that `shared.db.migrations` hands in."""

import asyncio
import os

from alembic import context
from sqlalchemy import Connection, text
from sqlalchemy.schema import SchemaItem

from shared.db.engine import create_engine
from shared.db.tables import metadata

# One migration at a time, however many processes start at once.
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('headrace migrations'))"


def is_declared(_: SchemaItem, name: str | None, kind: str, *__: object) -> bool:
    """Leave the daily partitions out of `alembic check`: a loop makes and drops them."""
    return not (kind == "table" and (name or "").startswith("webhook_groups_"))


def migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        include_object=is_declared,
        compare_type=True,
    )
    with context.begin_transaction():
        connection.execute(text("SET LOCAL lock_timeout = '5s'"))
        connection.execute(text(_LOCK))
        context.run_migrations()


async def migrate_url(database_url: str) -> None:
    engine = create_engine(database_url, pool_size=1, pgbouncer=True)  # there may be one
    async with engine.connect() as connection:
        await connection.run_sync(migrate)
        await connection.commit()
    await engine.dispose()


asyncio.run(migrate_url(context.config.attributes.get("url") or os.environ["DATABASE_URL"]))
