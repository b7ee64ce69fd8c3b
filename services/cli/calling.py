"""How a command asks the sender that the environment names, and tells what came of it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from services.cli.environment import setting
from services.cli.rest import Rest

T = TypeVar("T")

as_json = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")


def call(ask: Callable[[Rest], Awaitable[T]]) -> T:
    """Ask the sender that the environment names."""
    url, key = setting("HEADRACE_URL"), setting("HEADRACE_KEY")

    async def asked() -> T:
        async with Rest.open(url, key) as rest:
            return await ask(rest)

    return asyncio.run(asked())


def tell(answer: Any, text: str, *, as_json: bool) -> None:
    """The API's answer for a script, or the text for a person."""
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False) if as_json else text)
