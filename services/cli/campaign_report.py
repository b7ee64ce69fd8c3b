"""`headrace campaign report`: what became of a campaign, for people."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from services.cli.calling import as_json, call, campaign_id, tell
from services.cli.findings import said
from services.cli.progress import funnel, waiting
from services.cli.rest import Rest
from services.cli.times import local
from shared.domain.status import Status

TIMES = ("created_at", "start_at", "started_at", "ended_at", "expires_at")


@click.command("report")
@campaign_id
@as_json
def report(campaign_id: str, *, as_json: bool) -> None:
    """Print a campaign's exact counts, the errors it met, and its uploads."""
    told, errors = call(lambda rest: _ask(rest, f"/v1/campaigns/{campaign_id}"))
    tell(told, "\n".join(_lines(told, errors)), as_json=as_json)


async def _ask(rest: Rest, path: str) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
    told, errors = await asyncio.gather(rest.get(path), rest.get(f"{path}/errors"))
    return told, errors["data"]


def _lines(told: Mapping[str, Any], errors: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    reason = f" ({told['pause_reason']})" if told.get("pause_reason") else ""
    yield f"{told['name']}: {told['state']}{reason}"
    for name in TIMES:
        if told.get(name):
            yield f"  {name.removesuffix('_at'):<10}{local(told[name])}"
    counts = told["counts"]
    yield f"Recipients: {counts['total']:,}"
    for name, count in (*funnel(counts).items(), ("waiting", waiting(counts))):
        share = f"{100 * count / counts['total']:6.1f} %" if counts["total"] else ""
        yield f"  {name:<10}{count:>12,}{share}"
    yield from _section("Errors met, those of later successes too", map(_error, errors))
    yield from _section("Uploads", map(_upload, told["uploads"]))
    yield from _section("Not sending", map(said, told["holding"]))
    campaign = told["id"]
    if counts.get(Status.FAILED):
        yield f"Who and why: headrace campaign recipients {campaign} --status failed"
    if counts.get(Status.UNKNOWN):
        yield f"Nobody knows: headrace campaign recipients {campaign} --status unknown"
        yield "             `retry` sends to them again, `settle` counts them as failed"
    yield f"Everybody:   headrace campaign export {campaign}"


def _section(title: str, lines: Iterator[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield title
        yield from (f"  {line}" for line in found)


def _error(one: Mapping[str, Any]) -> str:
    return f"{one['met']:>8,}  {one['code']} {one['title']}"


def _upload(one: Mapping[str, Any]) -> str:
    counts = "{accepted:,} accepted, {duplicate:,} duplicate, {invalid:,} invalid".format(**one)
    ended = (
        ""
        if one["state"] == "done"
        else f" ({one['state']}{': ' if one['error'] else ''}{one['error'] or ''})"
    )
    return f"{local(one['started_at'])}  {counts}{ended}"
