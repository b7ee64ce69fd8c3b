"""The closing report of a demo: for people as a table, for machines as one JSON object."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from rich.console import Console
from rich.table import Table

from services.cli.comparison import Acceptance, Comparison

EXPLAINED = {
    "lost": "recipients without a trace at Meta, or accepted and not known here",
    "doubled": "recipients that Meta accepted twice",
    "wrong_status": "rows whose status is not the highest that was delivered",
    "wrong_wamid": "rows with another message's id",
    "unknown_missing": "requests nobody can know about that are not unknown here",
    "unknown_extra": "unknown here although there was evidence",
    "strays": "messages at Meta that belong to no row",
}


@dataclass(frozen=True)
class Report:
    """Everything that a run showed. `steps` is the funnel, `counts` rows per status.

    `troubles` are disagreements beside the comparison, one line each.
    """

    recipients: int
    rejects: Mapping[str, int]
    steps: Mapping[str, int]
    errors: Mapping[str, int]
    rate_configured: int
    rate_achieved: float
    max_in_one_second: int
    seconds: float
    comparison: Comparison
    troubles: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        return self.comparison.clean and not self.troubles

    @property
    def exit_code(self) -> int:
        return 0 if self.clean else 1

    def as_json(self) -> dict[str, Any]:
        return {
            "recipients": self.recipients,
            **self.steps,
            "rejected": sum(self.rejects.values()),
            "rejects": dict(self.rejects),
            "errors": dict(self.errors),
            "rate_configured": self.rate_configured,
            "rate_achieved": round(self.rate_achieved, 1),
            "max_in_one_second": self.max_in_one_second,
            "seconds": round(self.seconds, 1),
            **{name: len(ids) for name, ids in _disagreements(self.comparison).items()},
            "ids": {name: ids[:20] for name, ids in _disagreements(self.comparison).items() if ids},
            "troubles": list(self.troubles),
            "clean": self.clean,
        }


def achieved_rate(ledger: list[Acceptance]) -> float:
    """Acceptances per second of the main run: from the first to the last first attempt accepted.

    What waits for its second attempt, some seconds after the others, is no measure of the pace.
    """
    first = [item.at for item in ledger if item.token and item.token.attempt == 1]
    if len(first) < 2:
        return 0.0
    begin, end = min(first), max(first)
    within = sum(begin <= item.at <= end for item in ledger)
    return (within - 1) / (end - begin) if end > begin else 0.0


def show(report: Report, console: Console) -> None:
    """Print it for people."""
    console.print(_table("Recipients", {"uploaded": report.recipients, **report.steps}))
    console.print(_table("Rows refused at upload", report.rejects))
    console.print(_table("What Meta answered beside success", report.errors))
    console.print(_pace(report))
    console.print(_compared(report.comparison))
    for trouble in report.troubles:
        console.print(f"[red]{trouble}[/]")
    verdict = "[green]clean[/]" if report.clean else "[red]not clean[/]"
    console.print(f"After {report.seconds:.0f} s: {verdict}")


def _table(title: str, numbers: Mapping[str, int]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, width=60)
    table.add_column(ratio=1)
    table.add_column(justify="right")
    for name, number in numbers.items():
        table.add_row(name, f"{number:,}")
    return table


def _pace(report: Report) -> Table:
    table = _table("Pace, messages per second", {"configured": report.rate_configured})
    table.add_row("achieved, first to last first attempt", f"{report.rate_achieved:,.1f}")
    table.add_row("most accepted in any one second", f"{report.max_in_one_second:,}")
    return table


def _compared(comparison: Comparison) -> Table:
    table = Table(title="Database against Meta's ledger", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for name, ids in _disagreements(comparison).items():
        colour = "red" if ids else "green"
        some = f": rows {', '.join(map(str, ids[:5]))}" if ids else ""
        table.add_row(name, f"[{colour}]{len(ids)}[/]", EXPLAINED[name] + some)
    return table


def _disagreements(comparison: Comparison) -> dict[str, tuple[int, ...]]:
    return {field.name: getattr(comparison, field.name) for field in fields(comparison)}
