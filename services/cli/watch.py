"""`headrace campaign watch`: how far a campaign is, until it has ended."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console

from services.cli.calling import as_json, call, campaign_id, tell
from services.cli.numbers import campaign_rate
from services.cli.progress import progress
from services.cli.rest import AwayError, Rest
from shared.domain.campaigns import ENDED

WATCH_SECONDS = 1.0
# A sender that is replaced or restarted is back by then.
AWAY_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Sight:
    """A campaign, the errors it met, and what its number may send a second."""

    campaign: Mapping[str, Any]
    errors: Sequence[Mapping[str, Any]]
    limit: float


@click.command("watch")
@campaign_id
@as_json
def watch(campaign_id: str, *, as_json: bool) -> None:
    """Show a campaign until it has ended. Ctrl-C ends the watching, not the campaign."""
    console = Console(stderr=as_json)
    told = call(lambda rest: _watch(rest, campaign_id, console))
    tell(told, f"Campaign {campaign_id} is {told['state']}.", as_json=as_json)


async def _watch(rest: Rest, campaign_id: str, console: Console) -> Mapping[str, Any]:
    seen = await _look(rest, campaign_id)  # a mistake is told at once
    with progress(console) as show:
        while True:
            show(seen.campaign, seen.errors, seen.limit)
            if seen.campaign["state"] in ENDED:
                return seen.campaign
            await asyncio.sleep(WATCH_SECONDS)
            seen = await _look_again(rest, campaign_id, console)


async def _look_again(rest: Rest, campaign_id: str, console: Console) -> Sight:
    """Try again while the sender is away: the campaign goes on where it was when it is back."""
    end, said = time.monotonic() + AWAY_SECONDS, False
    while True:
        try:
            return await _look(rest, campaign_id)
        except AwayError as away:
            if time.monotonic() > end:
                raise
            if not said:
                console.print(
                    f"{away}; trying again", markup=False, highlight=False, soft_wrap=True
                )
                said = True
        await asyncio.sleep(WATCH_SECONDS)


async def _look(rest: Rest, campaign_id: str) -> Sight:
    path = f"/v1/campaigns/{campaign_id}"
    campaign = await rest.get(path)
    errors = await rest.get(f"{path}/errors")
    number = await rest.get(f"/v1/phone-numbers/{campaign['phone_number_id']}")
    return Sight(campaign, errors["data"], campaign_rate(number))
