"""`headrace campaign upload`: a file of recipients, told by its name what it is."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from services.cli.calling import as_json, call, campaign_id, tell

ROWS_SHOWN = 5
WORKBOOKS = {".xlsx", ".xlsm", ".xls", ".ods", ".numbers"}
KINDS = {"csv": "text/csv", "ndjson": "application/x-ndjson", "json": "application/json"}
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "json",
}


@click.command("upload")
@campaign_id
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--format",
    "kind",
    type=click.Choice(list(KINDS)),
    help="Otherwise by the file's name: .csv, .ndjson or .json, each also with .gz.",
)
@as_json
def upload(campaign_id: str, file: Path, kind: str | None, *, as_json: bool) -> None:
    """Add the recipients of a FILE, all of it or nothing; says which rows were refused."""
    headers = headers_for(file, kind)
    with _progress(file) as sent:
        told = call(lambda rest: rest.upload(campaign_id, file, headers, sent))
    counts = "{accepted} accepted, {duplicate} duplicate, {invalid} invalid".format(**told)
    tell(told, "\n".join([counts, *_refused(campaign_id, told)]), as_json=as_json)
    if told["invalid"] and not told["accepted"] + told["duplicate"]:
        raise click.ClickException("nobody was added: every row was refused")


def _refused(campaign_id: str, told: Mapping[str, Any]) -> Iterator[str]:
    """The rows of each reason, of those that the API tells, and where all of them are."""
    rows: dict[str, list[int]] = {}
    for reject in told["rejects"]:
        rows.setdefault(reject["reason"], []).append(reject["row"])
    for reason, found in rows.items():
        yield f"{_rows(found)}: {reason}"
    left_out = told["duplicate"] + told["invalid"] - len(told["rejects"])
    if left_out > 0:
        yield f"and {left_out:,} more rows"
    if rows:
        yield f"All of them, as they came: headrace campaign rejects {campaign_id}"


def _rows(found: list[int]) -> str:
    if len(found) == 1:
        return f"row {found[0]}"
    first = ", ".join(map(str, found[:ROWS_SHOWN]))
    return f"{len(found)} rows ({first}{', …' if len(found) > ROWS_SHOWN else ''})"


def headers_for(file: Path, kind: str | None) -> Mapping[str, str]:
    """What the API is told of a file."""
    gzipped = file.suffix.lower() == ".gz"
    inner = file.with_suffix("") if gzipped else file
    found = kind or SUFFIXES.get(inner.suffix.lower())
    if found is None:
        if inner.suffix.lower() in WORKBOOKS:
            raise click.UsageError(f"{file.name} is a workbook: save it as CSV UTF-8")
        raise click.UsageError(
            f"{file.name} does not say what it is: add --format {'|'.join(KINDS)}"
        )
    encoding = {"Content-Encoding": "gzip"} if gzipped else {}
    return {"Content-Type": KINDS[found], **encoding}


@contextmanager
def _progress(file: Path) -> Generator[Callable[[int], object]]:
    """On a terminal, how much of the file has gone out."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task("Uploading", total=file.stat().st_size or None)
        yield lambda size: shown.advance(task, size)
