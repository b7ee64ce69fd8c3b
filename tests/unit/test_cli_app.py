"""The command before any of its parts is loaded."""

import errno
import os

import click
import pytest
from asyncpg import DiskFullError

from services.cli.app import COMMANDS, headrace
from services.cli.complaint import complaint
from services.cli.wheels import EmbeddedError

FULL = os.strerror(errno.ENOSPC)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_of_a_command_how_its_own_help_begins(name: str) -> None:
    command = headrace.get_command(click.Context(headrace), name)
    assert command
    assert command.name == name
    assert (command.help or "").startswith(COMMANDS[name][1].removesuffix("."))


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, FULL, "/data/logs"), DiskFullError(f"could not extend file: {FULL}")],
)
def test_a_full_disk_is_one_line_with_the_cure(error: Exception) -> None:
    line = complaint(error)
    assert line
    assert FULL in line
    assert line.endswith("free some space on that disk, then again")


def test_what_says_its_cure_is_told_as_it_is() -> None:
    assert complaint(EmbeddedError("a cause: a cure")) == "a cause: a cure"


def test_a_mistake_of_ours_is_no_complaint() -> None:
    assert complaint(KeyError("lost")) is None
