"""How a command asks the sender that the environment names, and tells what came of it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

import click
from typing_extensions import override

from services.cli.environment import setting
from services.cli.rest import ConflictError, Part, Rest

T = TypeVar("T")

_OF_UP = " (where `headrace up` runs: . .headrace/env)"

as_json = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")


class CampaignId(click.ParamType[str]):
    """Refused here when it is none: the API would only say that a path holds no UUID."""

    name = "campaign"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return str(UUID(value))
        except ValueError:
            self.fail(f"{value!r} is no id; `headrace campaign list` shows them", param, ctx)


campaign_id = click.argument("campaign_id", metavar="CAMPAIGN", type=CampaignId())


def call(ask: Callable[[Rest], Awaitable[T]]) -> T:
    """Ask the sender that the environment names."""
    url, key = setting("HEADRACE_URL", _OF_UP), setting("HEADRACE_KEY", _OF_UP)

    async def asked() -> T:
        async with Rest.open(url, key) as rest:
            return await ask(rest)

    return asyncio.run(asked())


async def step(rest: Rest, path: str, name: str, state: str) -> Any:
    """Ask for a step into a state; what is in it already says just that."""
    try:
        return await rest.post(f"{path}/{name}")
    except ConflictError:
        if (await rest.get(path))["state"] == state:
            raise ConflictError(f"it is {state} already") from None
        raise


def tell_list(part: Part, line: Callable[[Any], str], *, as_json: bool) -> None:
    """A line for each; that there may be more is no line of the list."""
    tell(part.rows, "\n".join(map(line, part.rows)), as_json=as_json)
    if part.more:
        count = len(part.rows)
        click.echo(f"Only the first {count:,}: --limit {10 * count} shows more.", err=True)


def tell(answer: Any, text: str, *, as_json: bool) -> None:
    """The API's answer for a script, or the text for a person."""
    if as_json:
        click.echo(json.dumps(answer, indent=2, ensure_ascii=False))
    elif text:
        click.echo(
            "".join(
                letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text
            )
        )
