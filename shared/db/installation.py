"""Which installation this database is: part of every token."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

_READ = text("SELECT id FROM installation")


class Installation:
    """Its id, read when it is first needed: the database may come later than the process."""

    def __init__(self, engine: AsyncEngine, given: str | None) -> None:
        self._engine = engine
        self._id = given

    async def id(self) -> str:
        """32 hexadecimal digits: what the first migration made, or what the settings say."""
        if self._id is None:
            async with self._engine.connect() as connection:
                self._id = str((await connection.execute(_READ)).scalar_one())
        return self._id
