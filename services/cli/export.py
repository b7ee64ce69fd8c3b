"""`headrace campaign export`: everybody of a campaign and what became of the message."""

import sys
from pathlib import Path

import click

from services.cli.calling import call


@click.command("export")
@click.argument("campaign_id")
@click.option("--format", "kind", type=click.Choice(("csv", "ndjson")), default="csv")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Otherwise to the standard output. A file that is there is replaced at the end.",
)
def export(campaign_id: str, kind: str, output: Path | None) -> None:
    """Print every recipient of a campaign with status, times and errors."""
    path = f"/v1/campaigns/{campaign_id}/export?format={kind}"
    if output is None:
        call(lambda rest: rest.download(path, sys.stdout.buffer.write))
        sys.stdout.flush()
        return
    part = output.with_name(f"{output.name}.part")
    try:
        part.touch(mode=0o600)  # it holds phone numbers
        with part.open("wb") as file:
            call(lambda rest: rest.download(path, file.write))
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
    click.echo(f"Campaign {campaign_id} is in {output}.")
