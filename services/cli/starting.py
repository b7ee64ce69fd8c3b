"""`headrace campaign check` and `start`: what stands against a campaign, with its cure."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from services.cli.calling import as_json, call, campaign_id, tell
from services.cli.findings import said
from services.cli.rest import RestError
from services.cli.times import Moment, duration, local


@click.command("check")
@campaign_id
@as_json
def check(campaign_id: str, *, as_json: bool) -> None:
    """Say what would stop or spoil a campaign, each with its cure; fails if it may not start."""
    told = call(lambda rest: rest.post(f"/v1/campaigns/{campaign_id}/check"))
    tell(told, _text(told), as_json=as_json)
    click.get_current_context().exit(0 if told["ready"] else 1)


@click.command("start")
@campaign_id
@click.option("--at", type=Moment(), help="Not now but then: 2027-05-03T08:00:00+02:00.")
@click.option("--keep-open", is_flag=True, help="More recipients may come after the start.")
@as_json
def start(campaign_id: str, at: str | None, *, keep_open: bool, as_json: bool) -> None:
    """Start a campaign, now or at a time; its start closes its audience."""
    body = {"keep_open": keep_open} | ({"at": at} if at else {})
    try:
        told = call(lambda rest: rest.post(f"/v1/campaigns/{campaign_id}/start", body))
    except RestError as refused:
        if not refused.problems:
            raise
        lines = [f"campaign {campaign_id} may not start:", *_findings("", refused.problems)]
        raise click.ClickException("\n".join(lines)) from None
    when = f" for {local(told['start_at'])}" if told["state"] == "scheduled" else ""
    tell(told, f"Campaign {campaign_id} is {told['state']}{when}.", as_json=as_json)


def _text(told: Mapping[str, Any]) -> str:
    return "\n".join(
        [
            "It may start." if told["ready"] else "It may not start.",
            *_findings("problem: ", told["problems"]),
            *_findings("warning: ", told["warnings"]),
            *_plan(told),
        ]
    )


def _findings(kind: str, found: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"  {kind}{said(one)}" for one in found]


def _plan(told: Mapping[str, Any]) -> list[str]:
    left_out = "".join(
        f", {told[name]:,} {words}"
        for name, words in (("opted_out", "opted out"), ("not_allowed", "not allowed"))
        if told.get(name)
    )
    people = f"People: {told['people']:,}{left_out}."
    if not told.get("seconds") or not told.get("rate"):
        return [people]
    ends = f", until {local(told['ends_at'])}" if told.get("ends_at") else ""
    return [f"{people} At {told['rate']:g}/s that takes {duration(told['seconds'])}{ends}."]
