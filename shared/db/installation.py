"""Which installation this database is: part of every token."""

import os
import re

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.settings import SettingsError

_SHAPE = re.compile(r"[0-9a-f]{32}", re.ASCII)


async def read_installation(engine: AsyncEngine) -> str:
    """The id that the first migration made, or HEADRACE_INSTALLATION in a clone of a database."""
    given = os.environ.get("HEADRACE_INSTALLATION")
    if given is not None:
        return _checked(given)
    async with engine.connect() as connection:
        return str(await connection.scalar(text("SELECT id FROM installation")))


def _checked(given: str) -> str:
    if not _SHAPE.fullmatch(given):
        raise SettingsError("HEADRACE_INSTALLATION: must be 32 hexadecimal digits")
    return given
