"""A change wakes the workers at once, and they survive the end of their listening connection."""

import asyncio

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from waiting import until

from shared.db.notices import WAKE, listen

LISTENERS = (
    "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
)


async def test_a_commit_wakes_and_a_rollback_does_not(
    engine: AsyncEngine, database_url: str
) -> None:
    woken: list[int] = []
    listening = asyncio.create_task(listen(database_url, lambda: woken.append(1)))
    await until(lambda: len(woken) == 1)  # once at the start

    async with engine.connect() as connection:
        await connection.execute(WAKE)
        await connection.rollback()
    async with engine.begin() as connection:
        await connection.execute(WAKE)

    await until(lambda: len(woken) == 2)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_it_returns_when_its_connection_ends(engine: AsyncEngine, database_url: str) -> None:
    woken: list[int] = []
    listening = asyncio.create_task(listen(database_url, lambda: woken.append(1)))
    await until(lambda: woken)

    async with engine.begin() as connection:
        (pid,) = (await connection.execute(text(LISTENERS))).scalars().all()
        await connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})

    assert await asyncio.wait_for(listening, 10) is False
