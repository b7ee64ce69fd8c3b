"""Tells a row that Postgres will never take from a database that is away."""

import asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

#: What a statement raises while the database is away, full, shutting down or deadlocked, or while
#: all connections are in use.
DatabaseFault = (DBAPIError, PoolTimeoutError, OSError, TimeoutError)

# SQLSTATE classes that speak of the data: cardinality, data, constraint, limits of one statement,
# raised by a trigger. All others speak of the server or of us, and the same batch is tried again.
_POISON_CLASSES = ("21", "22", "23", "54", "P0")

#: SQLSTATE of a lock that was not there within `lock_timeout`.
LOCK_NOT_AVAILABLE = "55P03"


def sqlstate(error: DBAPIError) -> str:
    """Postgres' code for an error; empty where the driver itself refused."""
    return str(getattr(error.orig, "sqlstate", None) or "")


def is_poison(error: Exception) -> bool:
    """Whether the values are at fault, so that trying the same batch again cannot help."""
    if isinstance(error, UnicodeEncodeError):
        return True
    if isinstance(error, asyncpg.PostgresError):  # from the driver itself, as an upload's
        return str(error.sqlstate or "").startswith(_POISON_CLASSES)
    if not isinstance(error, DBAPIError):
        return False
    cause = error.orig.__cause__ if error.orig else None
    unfit = isinstance(cause, asyncpg.DataError | UnicodeEncodeError | OverflowError)
    return unfit or sqlstate(error).startswith(_POISON_CLASSES)
