"""The command `headrace`: every error is one line, exit code 0 only when it did what it says."""

import importlib
import warnings

import click
from typing_extensions import override

from services.cli.interrupts import INTERRUPTED, raise_in_the_work

# Where each is, and its line in the list of all.
COMMANDS = {
    "campaign": ("services.cli.campaigns", "Campaigns, from a draft to its report."),
    "demo": ("services.cli.demo", "Run a whole campaign here."),
    "doctor": ("services.cli.doctor", "Look at what a sender needs."),
    "halt": ("services.cli.halting", "Stop everything."),
    "keys": ("services.cli.keys", "API keys."),
    "migrate": ("services.cli.migrate", "Bring the database of DATABASE_URL to the newest schema."),
    "number": ("services.cli.numbers", "Business numbers."),
    "unhalt": ("services.cli.halting", "Let messages leave again."),
    "up": ("services.cli.up", "Run everything here until Ctrl-C."),
}


class Commands(click.Group):
    """Loads a command when it is called: the libraries of all of them take a second."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), cmd_name)
        return command

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def headrace() -> None:
    """Send WhatsApp campaigns at the pace that Meta and the people behind the number can take."""
    raise_in_the_work()  # the command is loaded by now


def main() -> int:
    """Run what the arguments say; returns the exit code."""
    try:
        return headrace.main(standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        click.echo(f"headrace: {error.format_message()}", err=True)
        return error.exit_code
    except click.Abort:
        # Of what was broken off, such as a coroutine that never began, nobody need be warned.
        warnings.simplefilter("ignore")
        return INTERRUPTED
    except Exception as error:
        line = importlib.import_module("services.cli.complaint").complaint(error)
        if line is None:
            raise
        click.echo(f"headrace: {line}", err=True)
        return 1
