"""`headrace migrate`: the database of the environment gets the newest schema."""

import click

from shared.db.migrations import upgrade
from shared.settings import DatabaseSettings


@click.command()
def migrate() -> None:
    """Bring the database of DATABASE_URL to the newest schema."""
    upgrade(DatabaseSettings.load().database_url.get_secret_value())
    click.echo("The schema is the newest.")
