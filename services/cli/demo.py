"""The demo: a whole campaign on this machine, through everything that goes wrong with Meta."""

import asyncio
import contextlib
import json
import math
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from services.cli.audience_file import AudienceFile, write_audience
from services.cli.evidence import errors_told
from services.cli.interrupts import first_only
from services.cli.own_servers import OwnServers
from services.cli.progress import funnel, progress
from services.cli.report import Report, achieved_rate, show
from services.cli.stack import Stack
from services.cli.trial import Outcome, open_trial
from services.cli.weather import EXCUSES, NAMED, stormy
from shared.domain.status import Status

NUMBER = "106540352242922"
# A stalled request holds its slot for so long; the default of 30 s would only prolong the demo.
TUNING = {"HEADRACE_READ_TIMEOUT_S": "10"}
# Beside the sending itself: the last stall, a second attempt after a pair limit, late webhooks.
PATIENCE_SECONDS = 100.0
# Fewer recipients may by chance meet too little of something.
ENOUGH = 5_000


@dataclass(frozen=True)
class Plan:
    """What the demo is asked for."""

    recipients: int
    rate: int
    seed: int

    @property
    def patience(self) -> float:
        """Bound for the whole run: with Meta's throttling it takes up to thrice its ideal time."""
        return PATIENCE_SECONDS + 3 * self.recipients / self.rate


@click.command()
@click.option("--recipients", default=10_000, show_default=True, type=click.IntRange(1, 1_000_000))
@click.option("--rate", default=400, show_default=True, type=click.IntRange(1, 1_000))
@click.option("--seed", default=1, show_default=True, type=click.IntRange(0, 2**63 - 1))
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.option("--own-servers", is_flag=True, help="Use DATABASE_URL (empty) and REDIS_URL.")
@click.option("--keep-logs", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER")
def demo(
    *,
    recipients: int,
    rate: int,
    seed: int,
    as_json: bool,
    own_servers: bool,
    keep_logs: Path | None,
) -> None:
    """Run a whole campaign here: servers, a simulated Meta, sender, ingest, and the proof."""
    console = Console(stderr=as_json)
    plan = Plan(recipients, rate, seed)
    with contextlib.ExitStack() as folders:
        folder = keep_logs or Path(folders.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        console.print("Starting Postgres, Valkey, the simulated Meta, ingest and sender")
        servers = OwnServers.from_environment() if own_servers else None
        with Stack(folder, TUNING, servers) as stack:
            console.print(f"Sending to {recipients:,} recipients at {rate} messages/s")
            report = asyncio.run(_run(stack, plan, folder, console))
    close(report, console, as_json=as_json)


def close(report: Report, console: Console, *, as_json: bool) -> None:
    """Show the report and end with its exit code."""
    if as_json:
        click.echo(json.dumps(report.as_json()))
    else:
        show(report, console)
    click.get_current_context().exit(report.exit_code)


async def _run(stack: Stack, plan: Plan, folder: Path, console: Console) -> Report:
    with first_only():  # asyncio has taken over Ctrl-C by now
        return await run(stack, plan, folder, console)


async def run(stack: Stack, plan: Plan, folder: Path, console: Console) -> Report:
    """Run one campaign and hold its end against the simulator's ledger."""
    began = time.monotonic()
    file = write_audience(folder / "audience.csv", plan.recipients, plan.seed)
    async with open_trial(stack, NUMBER, plan.rate, "Demo") as trial:
        scenario = stormy(plan.seed, plan.recipients, plan.rate)
        scenario["webhooks"]["url"] = stack.webhook_url
        await trial.meta.play(scenario)
        uploaded = await trial.upload(file.path)
        await trial.start()
        with progress(console) as look:
            settled = await trial.settle(plan.patience, look)
        outcome = await trial.compare(EXCUSES)
        troubles = [
            *([] if settled else [f"not settled after {plan.patience:.0f} s"]),
            *_upload_troubles(file, uploaded, outcome),
            *_count_troubles(outcome),
            *weather_troubles(_errors(outcome), len(outcome.rows)),
        ]
        return _report(plan, outcome, await trial.rejects(), troubles, time.monotonic() - began)


def _report(
    plan: Plan, outcome: Outcome, rejects: Mapping[str, int], troubles: list[str], seconds: float
) -> Report:
    return Report(
        recipients=len(outcome.rows),
        rejects=rejects,
        steps=funnel(outcome.statuses),
        errors=_errors(outcome),
        rate_configured=plan.rate,
        rate_achieved=achieved_rate(outcome.ledger),
        max_in_one_second=outcome.stats.peak,
        seconds=seconds,
        comparison=outcome.comparison,
        troubles=tuple(troubles),
    )


def _errors(outcome: Outcome) -> dict[str, int]:
    """Those of the scenario first, also when a small audience met none of them."""
    told = errors_told(outcome.stats, outcome.ledger, outcome.unclear)
    return {name: told.get(name, 0) for name in NAMED} | told


def weather_troubles(errors: Mapping[str, int], recipients: int) -> list[str]:
    """A run that did not meet its bad weather proves nothing about it."""
    least = math.ceil(recipients / 100)
    if recipients < ENOUGH:
        return []
    return [
        f"{name} was met {errors.get(name, 0)} times, expected at least {least}"
        for name in NAMED
        if errors.get(name, 0) < least
    ]


def _upload_troubles(
    file: AudienceFile, uploaded: Mapping[str, Any], outcome: Outcome
) -> list[str]:
    """The file's own numbers against the API's answer and the table."""
    expected = {"accepted": file.valid, "duplicate": file.repeated, "invalid": file.bad}
    troubles = [
        f"upload: {uploaded[name]} {name}, expected {count}"
        for name, count in expected.items()
        if uploaded[name] != count
    ]
    if len(outcome.rows) != file.valid:
        troubles.append(f"{len(outcome.rows)} rows in the table, expected {file.valid}")
    return troubles


def _count_troubles(outcome: Outcome) -> list[str]:
    """Every refusal that Meta gave was met once, and the counters are those of the rows."""
    met = {code: outcome.met.get(code, 0) for code in outcome.stats.refused}
    compared = {
        "rows per status": (outcome.counts, outcome.statuses),
        "refusals by code": (met, dict(outcome.stats.refused)),
    }
    troubles = [
        f"{what}: the API says {said}, true is {true}"
        for what, (said, true) in compared.items()
        if said != true
    ]
    # Everybody is allowed, nobody opts out, and nothing expires.
    skipped = outcome.statuses.get(Status.SKIPPED.value, 0)
    return [*troubles, f"{skipped} rows are skipped, expected none"] if skipped else troubles
