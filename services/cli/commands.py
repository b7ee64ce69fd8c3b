"""Commands for people and scripts that drive a running sender over its REST API."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from services.cli.environment import setting
from services.cli.progress import progress
from services.cli.rest import NotFoundError, Rest
from shared.domain.campaigns import ENDED

T = TypeVar("T")
WATCH_SECONDS = 1.0
NUMBER_SETTINGS = ("waba_id", "rate", "headroom", "portfolio_id", "token")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
def halt() -> None:
    """Stop everything: nothing leaves from any number within a second."""
    _call(lambda rest: rest.post("/v1/halt"))
    click.echo("Halted. `headrace unhalt` lets messages leave again.")


@click.command()
def unhalt() -> None:
    """Let messages leave again after `headrace halt`."""
    _call(lambda rest: rest.post("/v1/unhalt"))
    click.echo("Messages may leave again.")


@click.group()
def number() -> None:
    """Business numbers."""


@number.command("set")
@click.argument("phone_number_id")
@click.option("--waba-id", help="Its account at Meta; needed for a new number.")
@click.option("--rate", type=click.IntRange(1), help="Messages per second that Meta allows.")
@click.option(
    "--headroom", type=click.FloatRange(0, 1, max_open=True), help="Kept for live traffic."
)
@click.option("--portfolio-id", help="Its portfolio; '' for none.")
@click.option("--token", help="NAME of HEADRACE_ACCESS_TOKEN_<NAME>; '' for the common token.")
def number_set(phone_number_id: str, **settings: Any) -> None:
    """Register a business number, or change what is given of one."""
    given = {name: value for name, value in settings.items() if value is not None}
    _call(lambda rest: _set_number(rest, f"/v1/phone-numbers/{phone_number_id}", given))
    click.echo(f"Number {phone_number_id} is set.")


async def _set_number(rest: Rest, path: str, given: dict[str, Any]) -> None:
    """A PUT replaces the whole, so what is not given is taken from what is there."""
    try:
        there = await rest.get(path)
    except NotFoundError:
        if "waba_id" not in given:
            raise click.ClickException("--waba-id is needed for a new number") from None
        there = {}
    body = {name: there[name] for name in NUMBER_SETTINGS if name in there} | given
    await rest.put(path, {name: None if value == "" else value for name, value in body.items()})


@click.group()
def campaign() -> None:
    """Campaigns, from a draft to its report."""


@campaign.command("create")
@click.argument("file", type=FILE)
def create(file: Path) -> None:
    """Draft a campaign from a JSON FILE (name, phone_number_id, template, …); prints its id."""
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise click.ClickException(f"{file} is not JSON: {error}") from None
    click.echo(_call(lambda rest: rest.post("/v1/campaigns", body))["id"])


@campaign.command("upload")
@click.argument("campaign_id")
@click.argument("file", type=FILE)
def upload(campaign_id: str, file: Path) -> None:
    """Add the recipients of a CSV FILE; says which rows were refused."""
    told = _call(lambda rest: rest.upload(campaign_id, file))
    click.echo("{accepted} accepted, {duplicate} duplicate, {invalid} invalid".format(**told))
    for reject in told["rejects"]:
        click.echo(f"row {reject['row']}: {reject['reason']}")


@campaign.command("watch")
@click.argument("campaign_id")
def watch(campaign_id: str) -> None:
    """Show a campaign until it has ended."""
    _call(lambda rest: _watch(rest, campaign_id))


@campaign.command("report")
@click.argument("campaign_id")
def report(campaign_id: str) -> None:
    """Print a campaign with its exact counts as JSON."""
    told = _call(lambda rest: rest.get(f"/v1/campaigns/{campaign_id}"))
    click.echo(json.dumps(told, indent=2, ensure_ascii=False))


def _step(name: str, done: str) -> click.Command:
    """A command that only asks for a step of a campaign's life."""

    @click.command(name, help=f"{name.capitalize()} a campaign.")
    @click.argument("campaign_id")
    def step(campaign_id: str) -> None:
        _call(lambda rest: rest.post(f"/v1/campaigns/{campaign_id}/{name}"))
        click.echo(f"Campaign {campaign_id} is {done}.")

    return step


for verb, state in (
    ("start", "running"),
    ("pause", "paused"),
    ("resume", "running"),
    ("cancel", "cancelled"),
):
    campaign.add_command(_step(verb, state))


async def _watch(rest: Rest, campaign_id: str) -> None:
    with progress(Console()) as show:
        while True:
            told = await rest.get(f"/v1/campaigns/{campaign_id}")
            show(told)
            if told["state"] in ENDED:
                break
            await asyncio.sleep(WATCH_SECONDS)
    click.echo(f"Campaign {campaign_id} is {told['state']}.")


def _call(ask: Callable[[Rest], Awaitable[T]]) -> T:
    """Ask the sender that the environment names."""
    url, key = setting("HEADRACE_URL"), setting("HEADRACE_KEY")

    async def asked() -> T:
        async with Rest.open(url, key) as rest:
            return await ask(rest)

    return asyncio.run(asked())
