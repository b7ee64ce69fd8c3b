"""`headrace campaign export` and `rejects`: everybody of a campaign, and who never came in."""

import sys
from pathlib import Path

import click

from services.cli.calling import call, campaign_id

to_file = click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Otherwise to the standard output. A file that is there is replaced at the end.",
)


@click.command("export")
@campaign_id
@click.option("--format", "kind", type=click.Choice(("csv", "ndjson")), default="csv")
@to_file
def export(campaign_id: str, kind: str, output: Path | None) -> None:
    """Print every recipient of a campaign with status, times and errors."""
    _download(f"/v1/campaigns/{campaign_id}/export?format={kind}", output)
    if output:
        click.echo(f"Campaign {campaign_id} is in {output}.")


@click.command("rejects")
@campaign_id
@to_file
def rejects(campaign_id: str, output: Path | None) -> None:
    """Print the rows of the uploads that were refused, as CSV: row, reason and contents."""
    _download(f"/v1/campaigns/{campaign_id}/rejects", output)
    if output:
        click.echo(f"What was refused is in {output}.")


def _download(path: str, output: Path | None) -> None:
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
