"""Tells a row that Postgres will never take from a database that is away."""

import asyncpg
from sqlalchemy.exc import DBAPIError

# Data exception and integrity constraint violation.
_POISON_CLASSES = ("22", "23")


def is_poison(error: Exception) -> bool:
    """Whether the values are at fault, so that trying the same batch again cannot help."""
    if isinstance(error, UnicodeEncodeError):
        return True
    if not isinstance(error, DBAPIError):
        return False
    cause = error.orig.__cause__ if error.orig else None
    if isinstance(cause, asyncpg.DataError | UnicodeEncodeError | OverflowError):
        return True
    state = getattr(cause, "sqlstate", None) or ""
    return state[:2] in _POISON_CLASSES


#: What a statement raises while the database is away, full, shutting down or deadlocked.
DatabaseFault = (DBAPIError, OSError, TimeoutError)
