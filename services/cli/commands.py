"""Commands for people and scripts that drive a running sender over its REST API."""

import asyncio
import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from services.cli.calling import as_json, call, tell
from services.cli.export import export
from services.cli.progress import progress
from services.cli.rest import NotFoundError, Rest
from shared.domain.campaigns import ENDED

WATCH_SECONDS = 1.0
NUMBER_SETTINGS = ("waba_id", "rate", "headroom", "portfolio_id", "token")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
def halt() -> None:
    """Stop everything: nothing leaves from any number within a second."""
    call(lambda rest: rest.post("/v1/halt"))
    click.echo("Halted. `headrace unhalt` lets messages leave again.")


@click.command()
def unhalt() -> None:
    """Let messages leave again after `headrace halt`."""
    call(lambda rest: rest.post("/v1/unhalt"))
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
@as_json
def number_set(phone_number_id: str, *, as_json: bool, **settings: Any) -> None:
    """Register a business number, or change what is given of one."""
    given = {name: value for name, value in settings.items() if value is not None}
    told = call(lambda rest: _set_number(rest, f"/v1/phone-numbers/{phone_number_id}", given))
    tell(told, f"Number {phone_number_id} is set.", as_json=as_json)


async def _set_number(rest: Rest, path: str, given: dict[str, Any]) -> Any:
    """A PUT replaces the whole, so what is not given is taken from what is there."""
    try:
        there = await rest.get(path)
    except NotFoundError:
        if "waba_id" not in given:
            raise click.ClickException("--waba-id is needed for a new number") from None
        there = {}
    body = {name: there[name] for name in NUMBER_SETTINGS if name in there} | given
    body = {name: None if value == "" else value for name, value in body.items()}
    return await rest.put(path, body)


@click.group()
def campaign() -> None:
    """Campaigns, from a draft to its report."""


@campaign.command("create")
@click.argument("file", type=FILE)
@as_json
def create(file: Path, *, as_json: bool) -> None:
    """Draft a campaign from a JSON FILE (name, phone_number_id, template, …); prints its id."""
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise click.ClickException(f"{file} is not JSON: {error}") from None
    made = call(lambda rest: rest.post("/v1/campaigns", body))
    tell(made, made["id"], as_json=as_json)


@campaign.command("upload")
@click.argument("campaign_id")
@click.argument("file", type=FILE)
@as_json
def upload(campaign_id: str, file: Path, *, as_json: bool) -> None:
    """Add the recipients of a CSV FILE; says which rows were refused."""
    told = call(lambda rest: rest.upload(campaign_id, file))
    lines = ["{accepted} accepted, {duplicate} duplicate, {invalid} invalid".format(**told)]
    lines += [f"row {reject['row']}: {reject['reason']}" for reject in told["rejects"]]
    tell(told, "\n".join(lines), as_json=as_json)


@campaign.command("watch")
@click.argument("campaign_id")
@as_json
def watch(campaign_id: str, *, as_json: bool) -> None:
    """Show a campaign until it has ended."""
    console = Console(stderr=as_json)
    told = call(lambda rest: _watch(rest, campaign_id, console))
    tell(told, f"Campaign {campaign_id} is {told['state']}.", as_json=as_json)


@campaign.command("report")
@click.argument("campaign_id")
def report(campaign_id: str) -> None:
    """Print a campaign with its exact counts as JSON."""
    tell(call(lambda rest: rest.get(f"/v1/campaigns/{campaign_id}")), "", as_json=True)


def _step(name: str, done: str) -> click.Command:
    """A command that only asks for a step of a campaign's life."""

    @click.command(name, help=f"{name.capitalize()} a campaign.")
    @click.argument("campaign_id")
    @as_json
    def step(campaign_id: str, *, as_json: bool) -> None:
        told = call(lambda rest: rest.post(f"/v1/campaigns/{campaign_id}/{name}"))
        tell(told, f"Campaign {campaign_id} is {done}.", as_json=as_json)

    return step


for verb, state in (
    ("start", "running"),
    ("pause", "paused"),
    ("resume", "running"),
    ("cancel", "cancelled"),
):
    campaign.add_command(_step(verb, state))


campaign.add_command(export)


async def _watch(rest: Rest, campaign_id: str, console: Console) -> Any:
    with progress(console) as show:
        while True:
            told = await rest.get(f"/v1/campaigns/{campaign_id}")
            show(told)
            if told["state"] in ENDED:
                return told
            await asyncio.sleep(WATCH_SECONDS)
