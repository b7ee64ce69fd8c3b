"""Wakes the workers earlier than their next look: correctness rests on the look alone."""

import asyncio
from collections.abc import Callable

import asyncpg
from sqlalchemy import text

_CHANNEL = "headrace"

#: Part of each API transaction that changes what may be sent; it arrives with the commit.
WAKE = text(f"SELECT pg_notify('{_CHANNEL}', '')")


async def listen(database_url: str, wake: Callable[[], None]) -> bool:
    """Call `wake` for each notice until the connection ends; a loop opens the next one.

    On a connection of its own, since it belongs to one session: not through a transaction pooler.
    """
    connection = await asyncpg.connect(database_url, timeout=5)
    try:
        ended = asyncio.Event()
        connection.add_termination_listener(lambda _: ended.set())
        await connection.add_listener(_CHANNEL, lambda *_: wake())
        # Something may have changed before anybody listened.
        wake()
        await ended.wait()
    finally:
        connection.terminate()
    return False
