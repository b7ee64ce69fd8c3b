"""Shows a running campaign: a live table on a terminal, a line every few seconds elsewhere."""

import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from services.cli.findings import said
from services.cli.times import duration, local, seconds_until
from shared.domain.status import Status

LINE_SECONDS = 3.0
RATE_SECONDS = 3.0
ERRORS_SHOWN = 5

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


def waiting(counts: Mapping[str, int]) -> int:
    """How many have not been sent, or are on the wire."""
    return counts.get(Status.PENDING, 0) + counts.get(Status.CLAIMED, 0)


class Show(Protocol):
    """Shows what the API says of a campaign, the errors it met, and its number's pace."""

    def __call__(
        self,
        campaign: Mapping[str, Any],
        errors: Sequence[Mapping[str, Any]] = (),
        limit: float | None = None,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Glance:
    """One look at a campaign, in words where people read words."""

    state: str
    total: int
    steps: Mapping[str, int]
    left: int
    pace: str
    seconds: float
    ends: str
    errors: tuple[str, ...]
    holding: tuple[str, ...]


class Watch:
    """Turns answers of the API into glances."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._seen: deque[tuple[float, int]] = deque()

    def look(
        self,
        campaign: Mapping[str, Any],
        errors: Sequence[Mapping[str, Any]] = (),
        limit: float | None = None,
    ) -> Glance:
        now = time.monotonic()
        counts = campaign["counts"]
        steps = funnel(counts)
        own = self._rate(now, steps["accepted"] + steps["failed"] + steps["unknown"])
        told = campaign.get("rate")
        return Glance(
            state=campaign["state"],
            total=counts["total"],
            steps=steps,
            left=waiting(counts),
            pace=_pace(own if told is None else told, limit),
            seconds=now - self._started,
            ends=_ends(campaign.get("eta")),
            errors=tuple(_error(one) for one in errors[:ERRORS_SHOWN]),
            holding=tuple(said(one) for one in campaign.get("holding", ())),
        )

    def _rate(self, now: float, done: int) -> float:
        """That of the last few seconds."""
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
    with Live(console=console, refresh_per_second=8) as live:
        yield lambda campaign, errors=(), limit=None: live.update(
            _picture(watch.look(campaign, errors, limit))
        )


def _lines(console: Console, watch: Watch) -> Show:
    shown_at, shown = float("-inf"), ""

    def show(
        campaign: Mapping[str, Any],
        errors: Sequence[Mapping[str, Any]] = (),
        limit: float | None = None,
    ) -> None:
        nonlocal shown_at, shown
        glance = watch.look(campaign, errors, limit)
        if glance.state != shown or glance.seconds - shown_at >= LINE_SECONDS:
            shown_at, shown = glance.seconds, glance.state
            console.print(_line(glance), highlight=False, markup=False, soft_wrap=True)

    return show


def _line(glance: Glance) -> str:
    steps = "  ".join(f"{name} {count:,}" for name, count in glance.steps.items())
    return "  ".join(
        (
            f"{glance.seconds:5.0f} s",
            glance.state,
            glance.pace,
            f"left {glance.left:,}",
            steps,
            *((glance.ends,) if glance.ends else ()),
            *(f"[{one}]" for one in (*glance.errors, *glance.holding)),
        )
    )


def _picture(glance: Glance) -> Group:
    table = Table.grid(padding=(0, 2))
    table.add_row(glance.state, f"{glance.left:,} left", Text(f"{glance.pace}  {glance.ends}"))
    for name, count in glance.steps.items():
        share = ProgressBar(total=max(1, glance.total), completed=count, width=40)
        table.add_row(name, f"{count:,}", share)
    return Group(table, *_below(glance))


def _below(glance: Glance) -> Iterator[Text]:
    yield from (Text(f"not sending: {one}", style="yellow") for one in glance.holding)
    yield from (Text(f"met: {one}") for one in glance.errors)


def _pace(rate: float, limit: float | None) -> str:
    return f"{rate:.0f}/s" if limit is None else f"{rate:.0f}/s of {limit:.4g}/s"


def _ends(eta: str | None) -> str:
    return "" if eta is None else f"ends in {duration(seconds_until(eta))}, {local(eta)}"


def _error(one: Mapping[str, Any]) -> str:
    return f"{one['code']} {one['title']}: {one['met']:,}"
