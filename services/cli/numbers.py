"""`headrace number`: the business numbers that campaigns are sent from."""

import sys
from collections.abc import Mapping
from typing import Any

import click

from services.cli.calling import as_json, call, step, tell, tell_list
from services.cli.times import local


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
def set_number(phone_number_id: str, *, as_json: bool, **settings: Any) -> None:
    """Register a business number, or change what is given of one."""
    given = {
        name: None if value == "" else value
        for name, value in settings.items()
        if value is not None
    }
    told = call(lambda rest: rest.put(f"/v1/phone-numbers/{phone_number_id}", given))
    pace = f"campaigns send {campaign_rate(told):.4g} of its {told['rate']} messages a second"
    text = f"Number {phone_number_id} is set: {pace}, {told['headroom']:.0%} is kept free."
    tell(told, text, as_json=as_json)


@number.command("list")
@as_json
def list_numbers(*, as_json: bool) -> None:
    """All numbers: id, account, pace of campaigns and of all, state and why."""
    found = call(lambda rest: rest.first("/v1/phone-numbers", sys.maxsize))
    tell_list(found, _line, as_json=as_json)


def _step(name: str, done: str) -> click.Command:
    @click.command(name, help=f"{name.capitalize()} a number.")
    @click.argument("phone_number_id")
    @as_json
    def command(phone_number_id: str, *, as_json: bool) -> None:
        path = f"/v1/phone-numbers/{phone_number_id}"
        told = call(lambda rest: step(rest, path, name, done))
        tell(told, f"Number {phone_number_id} is {done}.", as_json=as_json)

    return command


number.add_command(_step("pause", "paused"))
number.add_command(_step("resume", "active"))


def campaign_rate(one: Mapping[str, Any]) -> float:
    """Messages a second that campaigns may send on a number now, after Meta's throttling."""
    planned = one.get("campaign_rate")
    if planned is None:
        planned = one["rate"] * (1 - one["headroom"])
    left = one.get("effective_rate")
    return float(planned if left is None else planned * left / one["rate"])


def _line(one: Mapping[str, Any]) -> str:
    reason = f" ({one['paused_reason']})" if one["paused_reason"] else ""
    until = f" until {local(one['paused_until'])}" if one["paused_until"] else ""
    pace = f"{campaign_rate(one):.4g}/s of {one['rate']}/s"
    ids = f"{one['phone_number_id']:<18}  {one['waba_id']:<18}"
    return f"{ids}  {pace:<14}  {one['state']}{reason}{until}"
