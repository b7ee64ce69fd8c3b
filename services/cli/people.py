"""`headrace campaign recipients` and `recipient`: who got it, who did not, and why."""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from services.cli.calling import as_json, call, campaign_id, tell, tell_list
from services.cli.times import local
from shared.domain.status import Status

TIMES = ("due_at", "claimed_at", "accepted_at", "sent_at", "delivered_at", "read_at", "failed_at")


@click.command("recipients")
@campaign_id
@click.option("--status", type=click.Choice([status.value for status in Status]))
@click.option("--error-code", type=click.IntRange(0), help="Meta's last word on the message.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1))
@as_json
def recipients(
    campaign_id: str, status: str | None, error_code: int | None, limit: int, *, as_json: bool
) -> None:
    """List recipients: id, number, status and why (Meta's code, or ours), your external_id."""
    path = f"/v1/campaigns/{campaign_id}/recipients"
    wanted = {"status": status, "error_code": error_code}
    found = call(lambda rest: rest.first(path, limit, **wanted))
    tell_list(found, _line, as_json=as_json)


@click.command("recipient")
@campaign_id
@click.argument("recipient_id", type=click.IntRange(1), metavar="RECIPIENT")
@as_json
def recipient(campaign_id: str, recipient_id: int, *, as_json: bool) -> None:
    """Show one recipient by id: times, and what Meta said to each attempt that failed."""
    path = f"/v1/campaigns/{campaign_id}/recipients/{recipient_id}"
    told = call(lambda rest: rest.get(path))
    tell(told, "\n".join(_lines(told)), as_json=as_json)


def _line(one: Mapping[str, Any]) -> str:
    cells = (f"{one['id']:>8}", f"{_plus(one['phone']):<16}", f"{one['status']:<9}", _why(one))
    return "  ".join((*cells, one["external_id"] or "")).rstrip()


def _plus(address: str) -> str:
    """A number as people write it; a user id as it is."""
    return f"+{address}" if address.isdecimal() else address


def _why(one: Mapping[str, Any]) -> str:
    if one["error_code"] is not None:
        return f"{one['error_code']} {one['error_title']}"
    return one["reason"] or ""


def _lines(one: Mapping[str, Any]) -> Iterator[str]:
    yield _line(one)
    yield from (
        f"  {name.removesuffix('_at'):<10}{local(one[name])}" for name in TIMES if one[name]
    )
    for attempt in one["attempts"]:
        words = (f"attempt {attempt['attempt']}", attempt["outcome"], _said(attempt))
        yield "  " + ": ".join(word for word in words if word)


def _said(attempt: Mapping[str, Any]) -> str:
    """Meta's code, its title, and its details where they say more."""
    code, title, details = (attempt[name] for name in ("error_code", "error_title", "details"))
    known = "" if code is None else f"{code} {title}"
    return known if not details or details == title else f"{known} ({details})".strip()
