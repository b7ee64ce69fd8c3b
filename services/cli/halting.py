"""`headrace halt` and `headrace unhalt`: the red button."""

import click

from services.cli.calling import as_json, call, tell


@click.command()
@as_json
def halt(*, as_json: bool) -> None:
    """Stop everything: nothing leaves from any number within a second."""
    told = call(lambda rest: rest.post("/v1/halt"))
    tell(told, "Halted. `headrace unhalt` lets messages leave again.", as_json=as_json)


@click.command()
@as_json
def unhalt(*, as_json: bool) -> None:
    """Let messages leave again after `headrace halt`."""
    tell(call(lambda rest: rest.post("/v1/unhalt")), "Messages may leave again.", as_json=as_json)
