"""`headrace campaign`: from a draft to its report."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from services.cli.calling import as_json, call, campaign_id, step, tell, tell_list
from services.cli.campaign_report import report
from services.cli.export import export, rejects
from services.cli.people import recipient, recipients
from services.cli.requeue import retry, settle
from services.cli.starting import check, start
from services.cli.times import local
from services.cli.uploading import upload
from services.cli.watch import watch
from shared.domain.campaigns import CampaignState


@click.group()
def campaign() -> None:
    """Campaigns, from a draft to its report."""


@campaign.command("create")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@as_json
def create(file: Path, *, as_json: bool) -> None:
    """Draft a campaign from a JSON FILE (name, phone_number_id, template, …); prints its id."""
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise click.ClickException(f"{file} is not JSON: {error}") from None
    made = call(lambda rest: rest.post("/v1/campaigns", body))
    tell(made, made["id"], as_json=as_json)


@campaign.command("list")
@click.option("--state", type=click.Choice([state.value for state in CampaignState]))
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1))
@as_json
def list_campaigns(state: str | None, limit: int, *, as_json: bool) -> None:
    """The newest campaigns: id, state, when it was made, name."""
    found = call(lambda rest: rest.first("/v1/campaigns", limit, state=state))
    tell_list(found, _line, as_json=as_json)


def _step(name: str, done: str, explained: str) -> click.Command:
    """A command that only asks for a step of a campaign's life; `done` is its state then."""

    @click.command(name, help=explained)
    @campaign_id
    @as_json
    def command(campaign_id: str, *, as_json: bool) -> None:
        path = f"/v1/campaigns/{campaign_id}"
        told = call(lambda rest: step(rest, path, name, done))
        tell(told, f"Campaign {campaign_id} is {done}.", as_json=as_json)

    return command


for one in (
    _step("pause", "paused", "Let nothing more leave until it is resumed."),
    _step("resume", "running", "Go on with a paused campaign."),
    _step("cancel", "cancelled", "End a campaign for good: who has not had it is skipped."),
    _step("close", "closed", "Take no more recipients: it may complete."),
    *(check, start, upload, watch, report, export, rejects, recipient, recipients, retry, settle),
):
    campaign.add_command(one)


def _line(one: Mapping[str, Any]) -> str:
    return f"{one['id']}  {one['state']:<9}  {local(one['created_at'])}  {one['name']}"
