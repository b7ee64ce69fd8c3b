"""`headrace up`: the whole stack on this machine, with its data kept, until Ctrl-C."""

import contextlib
import os
import shlex
import time
from collections.abc import Generator, Mapping
from dataclasses import asdict
from pathlib import Path

import click

from services.cli.embedded import EmbeddedServers
from services.cli.home import alone, occupy, state_folder, write_private
from services.cli.stack import Ports, Stack

WANTED = Ports(sender=8000, ingest=8001, simulator=8002)
LOOK_SECONDS = 0.5


@click.command()
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Where the data are kept; otherwise in the user's state folder.",
)
def up(data: Path | None) -> None:
    """Run everything here until Ctrl-C: servers, a simulated Meta, ingest and sender.

    The data stay for the next start. Writes .headrace/env, for the commands in this folder,
    and .headrace/sender.env, for `headrace doctor`.
    """
    env = Path.cwd() / ".headrace" / "env"
    with occupy(data or state_folder()) as home, alone(env.parent):
        click.echo("Starting Postgres, Valkey, ingest, the simulated Meta and sender")
        servers = EmbeddedServers(home.path, durable=True)
        with (
            Stack(home.logs, servers=servers, kept=home.secrets, ports=WANTED) as stack,
            env_file(stack, env),
        ):
            with contextlib.suppress(KeyboardInterrupt):
                click.echo(_told(stack, home.path))
                _stay(servers, stack)
            click.echo("Stopping: what is on its way to Meta may end first")
    click.echo(f"Stopped. The data stay in {home.path}")


@contextlib.contextmanager
def env_file(stack: Stack, path: Path) -> Generator[None]:
    """What a shell needs to know of the stack while it runs; beside it, what its sender has."""
    settings = {
        "HEADRACE_URL": stack.sender.url,
        "HEADRACE_INGEST_URL": stack.ingest.url,
        "HEADRACE_KEY": stack.secrets.admin_key,
    }
    sender = _exports(stack.sender_settings, path.with_name("sender.env"))
    with _exports(settings, path), sender:
        yield


@contextlib.contextmanager
def _exports(settings: Mapping[str, str], path: Path) -> Generator[None]:
    text = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())
    write_private(path, text)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if path.read_text() == text:  # not that of another stack
                path.unlink()


def _told(stack: Stack, data: Path) -> str:
    return "\n".join(
        [
            *_moved(stack),
            f"  REST API   {stack.sender.url}/docs",
            f"  webhooks   {stack.webhook_url}",
            f"  simulator  {stack.simulator.url}",
            f"  database   {stack.database_url}",
            f"  data       {data}",
            f"  logs       {data / 'logs'}",
            f"Headrace is up (process {os.getpid()}); Ctrl-C stops it. In another shell, here:",
            "  . .headrace/env",
            "  (. .headrace/sender.env; headrace doctor)",
        ]
    )


def _moved(stack: Stack) -> list[str]:
    """Those that are elsewhere than they are looked for."""
    parts = {"sender": stack.sender, "ingest": stack.ingest, "simulator": stack.simulator}
    return [
        f"Port {port} is taken: the {name} listens on {parts[name].port}"
        for name, port in asdict(WANTED).items()
        if parts[name].port != port
    ]


def _stay(servers: EmbeddedServers, stack: Stack) -> None:
    """Until Ctrl-C, or until a part ends by itself: then all end, with one line."""
    while True:
        servers.check()
        stack.check()
        time.sleep(LOOK_SECONDS)
