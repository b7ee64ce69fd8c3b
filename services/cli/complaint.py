"""What a person can do something about, in one line; all else is a mistake and shows where."""

import errno
import os

from asyncpg import PostgresError
from httpx import HTTPError
from sqlalchemy.exc import SQLAlchemyError

from services.cli.leash import LeashError
from services.cli.processes import ServiceError
from services.cli.rest import RestError
from services.cli.wheels import EmbeddedError
from shared.settings import SettingsError

# These say the cure themselves.
OURS = (EmbeddedError, LeashError, RestError, SettingsError)
THEIRS = (OSError, PostgresError, HTTPError, SQLAlchemyError)
FULL = os.strerror(errno.ENOSPC)


def complaint(error: Exception) -> str | None:
    if isinstance(error, ServiceError):
        return str(error)  # with the end of its log
    line = next(iter(str(error).splitlines()), type(error).__name__)
    if isinstance(error, OURS):
        return line
    if isinstance(error, THEIRS):
        return f"{line}: free some space on that disk, then again" if FULL in line else line
    return None
