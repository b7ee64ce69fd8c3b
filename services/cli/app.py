"""The command `headrace`: every error is one line, exit code 0 only when it did what it says."""

import asyncio
import contextlib
import json
import signal
import tempfile
from pathlib import Path

import click
from asyncpg import PostgresError
from httpx import HTTPError
from rich.console import Console
from sqlalchemy.exc import SQLAlchemyError

from services.cli.commands import campaign, halt, number, unhalt
from services.cli.demo import TUNING, Plan, run
from services.cli.doctor import doctor
from services.cli.keys import keys
from services.cli.leash import LeashError
from services.cli.own_servers import OwnServers
from services.cli.processes import ServiceError
from services.cli.report import Report, show
from services.cli.rest import RestError
from services.cli.stack import Stack
from services.cli.up import up
from services.cli.wheels import EmbeddedError
from shared.db.migrations import upgrade
from shared.settings import DatabaseSettings, SettingsError

INTERRUPTED = 130
# What a person can do something about; everything else is a mistake of ours and shows where.
EXPECTED = (
    EmbeddedError,
    LeashError,
    RestError,
    SettingsError,
    OSError,
    PostgresError,
    HTTPError,
    SQLAlchemyError,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def headrace() -> None:
    """Send WhatsApp campaigns at the pace that Meta and the people behind the number can take."""


@headrace.command()
@click.option("--recipients", default=10_000, show_default=True, type=click.IntRange(1, 1_000_000))
@click.option("--rate", default=400, show_default=True, type=click.IntRange(1, 1_000))
@click.option("--seed", default=1, show_default=True, type=click.IntRange(0, 2**63 - 1))
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.option("--own-servers", is_flag=True, help="Use DATABASE_URL (empty) and REDIS_URL.")
@click.option("--keep-logs", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER")
def demo(
    *,
    recipients: int,
    rate: int,
    seed: int,
    as_json: bool,
    own_servers: bool,
    keep_logs: Path | None,
) -> None:
    """Run a whole campaign here: servers, a simulated Meta, sender, ingest, and the proof."""
    # A polite end is the same as Ctrl-C: what was started is stopped in order.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    console = Console(stderr=as_json)
    plan = Plan(recipients, rate, seed)
    with contextlib.ExitStack() as folders:
        folder = keep_logs or Path(folders.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        console.print("Starting Postgres, Valkey, the simulated Meta, ingest and sender")
        servers = OwnServers.from_environment() if own_servers else None
        with Stack(folder, TUNING, servers) as stack:
            console.print(f"Sending to {recipients:,} recipients at {rate} messages/s")
            report = asyncio.run(run(stack, plan, folder, console))
    close(report, console, as_json=as_json)


@headrace.command()
def migrate() -> None:
    """Bring the database of DATABASE_URL to the newest schema."""
    upgrade(DatabaseSettings.load().database_url.get_secret_value())
    click.echo("The schema is the newest.")


for command in (campaign, doctor, halt, keys, number, unhalt, up):
    headrace.add_command(command)


def close(report: Report, console: Console, *, as_json: bool) -> None:
    """Show the report and end with its exit code."""
    if as_json:
        click.echo(json.dumps(report.as_json()))
    else:
        show(report, console)
    click.get_current_context().exit(report.exit_code)


def main() -> int:
    """Entry point; returns the exit code."""
    try:
        return headrace.main(standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        click.echo(f"headrace: {error.format_message()}", err=True)
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except ServiceError as error:
        click.echo(f"headrace: {error}", err=True)  # with the end of its log
        return 1
    except EXPECTED as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        click.echo(f"headrace: {line}", err=True)
        return 1
