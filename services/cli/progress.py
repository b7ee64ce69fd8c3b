"""Shows a running campaign: a live table on a terminal, a line every few seconds elsewhere."""

import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from shared.domain.status import Status

LINE_SECONDS = 3.0
RATE_SECONDS = 3.0
Show = Callable[[Mapping[str, Any]], None]

#: Each step of the funnel holds the later ones too.
FUNNEL: Mapping[str, tuple[Status, ...]] = {
    "accepted": (Status.ACCEPTED, Status.SENT, Status.DELIVERED, Status.READ),
    "sent": (Status.SENT, Status.DELIVERED, Status.READ),
    "delivered": (Status.DELIVERED, Status.READ),
    "read": (Status.READ,),
    "failed": (Status.FAILED,),
    "unknown": (Status.UNKNOWN,),
    "skipped": (Status.SKIPPED,),
}


def funnel(counts: Mapping[str, int]) -> dict[str, int]:
    """From exact counts per status to how many got at least so far."""
    return {step: sum(counts.get(status, 0) for status in held) for step, held in FUNNEL.items()}


@dataclass(frozen=True, slots=True)
class Glance:
    """One look at a campaign."""

    state: str
    total: int
    steps: Mapping[str, int]
    rate: float
    seconds: float
    holding: tuple[str, ...]

    @property
    def left(self) -> int:
        return self.total - sum(
            self.steps[name] for name in ("accepted", "failed", "unknown", "skipped")
        )


class Watch:
    """Turns answers of the API into glances; the rate is that of the last few seconds."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._seen: deque[tuple[float, int]] = deque()

    def look(self, campaign: Mapping[str, Any]) -> Glance:
        now = time.monotonic()
        counts = campaign["counts"]
        steps = funnel(counts)
        return Glance(
            state=campaign["state"],
            total=counts["total"],
            steps=steps,
            rate=self._rate(now, steps["accepted"] + steps["failed"] + steps["unknown"]),
            seconds=now - self._started,
            holding=tuple(_reason(item) for item in campaign.get("holding", ())),
        )

    def _rate(self, now: float, done: int) -> float:
        self._seen.append((now, done))
        while now - self._seen[0][0] > RATE_SECONDS and len(self._seen) > 2:
            self._seen.popleft()
        since, before = self._seen[0]
        return (done - before) / (now - since) if now > since else 0.0


@contextmanager
def progress(console: Console) -> Generator[Show]:
    """A function that shows an answer of the API about a campaign."""
    watch = Watch()
    if not console.is_terminal:
        yield _lines(console, watch)
        return
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        yield lambda campaign: live.update(_picture(watch.look(campaign)))


def _lines(console: Console, watch: Watch) -> Show:
    shown_at = float("-inf")

    def show(campaign: Mapping[str, Any]) -> None:
        nonlocal shown_at
        glance = watch.look(campaign)
        if glance.seconds - shown_at >= LINE_SECONDS:
            shown_at = glance.seconds
            console.print(_line(glance), highlight=False, soft_wrap=True)

    return show


def _line(glance: Glance) -> str:
    steps = "  ".join(f"{name} {count:,}" for name, count in glance.steps.items())
    held = f"  ({', '.join(glance.holding)})" if glance.holding else ""
    return (
        f"{glance.seconds:5.0f} s  {glance.state}  {glance.rate:.0f}/s  "
        f"left {glance.left:,}  {steps}{held}"
    )


def _picture(glance: Glance) -> Group:
    table = Table.grid(padding=(0, 2))
    table.add_row(f"{glance.state}", f"{glance.seconds:.0f} s", f"{glance.rate:.0f} messages/s")
    for name, count in glance.steps.items():
        share = ProgressBar(total=max(1, glance.total), completed=count, width=40)
        table.add_row(name, f"{count:,}", share)
    held = f"holding: {', '.join(glance.holding)}" if glance.holding else ""
    return Group(table, held)


def _reason(item: Any) -> str:
    return str(item["reason"]) if isinstance(item, Mapping) else str(item)
