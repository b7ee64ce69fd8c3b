"""What the command line reads from the environment."""

import os

from click import ClickException

_POOLER = "HEADRACE_PGBOUNCER"


def setting(name: str, elsewhere: str = "") -> str:
    """The value of a variable that a command cannot do without, and where it may come from."""
    value = os.environ.get(name, "").strip()  # who copies one takes a space along
    if not value:
        raise ClickException(f"{name} is missing: set it in the environment{elsewhere}")
    return value


def forget_settings() -> None:
    """A setting of the user's shell must not reach our stack: it may name a real server.

    That a pooler stands before it names none, and a database of the user's own needs it.
    """
    for name in list(os.environ):
        if name.startswith(("HEADRACE_", "DATABASE_URL", "REDIS_URL")) and name != _POOLER:
            del os.environ[name]
