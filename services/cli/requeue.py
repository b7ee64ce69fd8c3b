"""`headrace campaign retry` and `settle`: what an operator decides of failed and unknown rows."""

import asyncio
from typing import Any

import click

from services.cli.calling import as_json, call, campaign_id, tell
from services.cli.rest import Rest, RestError


@click.command("retry")
@campaign_id
@click.option("--status", type=click.Choice(("failed", "unknown")), required=True)
@click.option("--error-code", "codes", multiple=True, type=int, help="Only these; may be repeated.")
@click.option("--settled", is_flag=True, help="Of the failed, those too that were settled.")
@as_json
def retry(
    campaign_id: str, status: str, codes: tuple[int, ...], *, settled: bool, as_json: bool
) -> None:
    """Send failed or unknown ones again. One that is unknown, or was, may then come twice."""
    body: dict[str, Any] = {"status": status}
    body |= {"error_codes": list(codes)} if codes else {}
    body |= {"settled": True} if settled else {}
    moved = call(lambda rest: _all(rest, f"/v1/campaigns/{campaign_id}/retry", body, "requeued"))
    tell({"requeued": moved}, f"{moved:,} wait to be sent again.", as_json=as_json)


@click.command("settle")
@campaign_id
@click.option("--as", "become", type=click.Choice(("failed",)), required=True)
@as_json
def settle(campaign_id: str, become: str, *, as_json: bool) -> None:
    """Count what stayed unknown as failed, until evidence says otherwise."""
    body = {"as": become}
    moved = call(lambda rest: _all(rest, f"/v1/campaigns/{campaign_id}/settle", body, "settled"))
    tell({"settled": moved}, f"{moved:,} are settled as {become}.", as_json=as_json)


async def _all(rest: Rest, path: str, body: dict[str, Any], count: str) -> int:
    """One call moves some thousands, and says where to go on. What was moved stays so."""
    moved = 0
    try:
        while True:
            told = await rest.post(path, body)
            moved += int(told[count])
            if not told.get("next_cursor"):
                return moved
            body = body | {"cursor": told["next_cursor"]}
    except (RestError, asyncio.CancelledError):
        if moved:
            click.echo(f"{moved:,} were {count} before it was cut off.", err=True)
        raise
