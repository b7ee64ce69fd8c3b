"""Brings a database to the newest schema."""

from pathlib import Path

from alembic import command
from alembic.config import Config

_SCRIPTS = Path(__file__).parents[2] / "alembic"


def upgrade(database_url: str) -> None:
    """Run every migration that the database lacks. Safe to call from several processes at once.

    It runs an event loop of its own: from async code, call it in a thread.
    """
    command.upgrade(alembic_config(database_url), "head")


def alembic_config(database_url: str) -> Config:
    """Alembic's configuration, for the other commands too (`check`, `downgrade`)."""
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.attributes["url"] = database_url
    return config
