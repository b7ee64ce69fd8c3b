"""What a watcher sees: steps that hold the later ones, and nothing that floods a log."""

import io
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console

from services.cli.progress import funnel, progress

HELD = {
    "reason": "number_paused",
    "detail": "throttled [130429]",
    "cure": "POST …/resume",
    "ends_at": "2027-05-03T08:00:00Z",
}
CAMPAIGN: dict[str, Any] = {
    "state": "running",
    "counts": {"total": 10, "pending": 2, "claimed": 1, "sent": 2, "read": 4, "unknown": 1},
    "rate": 311.6,
    "eta": None,
    "holding": [HELD],
}
ERRORS = [{"code": 131026, "title": "Message undeliverable", "met": 1200}]


def shown(campaign: dict[str, Any], *, live: bool, times: int = 1) -> str:
    out = io.StringIO()
    with progress(Console(file=out, force_terminal=live, width=120)) as show:
        for _ in range(times):
            show(campaign, ERRORS, 320.0)
    return out.getvalue()


def test_each_step_holds_the_later_ones() -> None:
    steps = funnel(CAMPAIGN["counts"])
    assert steps == {
        "accepted": 6,
        "sent": 6,
        "delivered": 4,
        "read": 4,
        "failed": 0,
        "unknown": 1,
        "skipped": 0,
    }


def test_elsewhere_than_on_a_terminal_it_is_a_line_now_and_then() -> None:
    (line,) = shown(CAMPAIGN, live=False, times=20).splitlines()
    assert "running  312/s of 320/s  left 3  accepted 6" in line
    assert "[131026 Message undeliverable: 1,200]" in line
    assert "[number_paused: throttled [130429], until 2027-05-03 " in line
    assert line.endswith("(cure: POST …/resume)]")


def test_another_state_is_told_at_once() -> None:
    out = io.StringIO()
    with progress(Console(file=out)) as show:
        for state in ("running", "paused", "paused", "completed"):
            show(CAMPAIGN | {"state": state})
    states = [line.split()[2] for line in out.getvalue().splitlines()]
    assert states == ["running", "paused", "completed"]


def test_it_says_when_it_ends() -> None:
    eta = datetime.now(UTC) + timedelta(seconds=3600 + 125.5)
    (line,) = shown(CAMPAIGN | {"eta": eta.isoformat()}, live=False).splitlines()
    assert "ends in 1 h 2 min, " in line


def test_on_a_terminal_it_is_a_live_table() -> None:
    picture = shown(CAMPAIGN, live=True)
    assert "312/s of 320/s" in picture
    assert "not sending: number_paused: throttled [130429]" in picture
    assert "met: 131026 Message undeliverable: 1,200" in picture


def test_a_pace_that_nobody_told_is_counted() -> None:
    (line,) = shown(CAMPAIGN | {"rate": None}, live=False).splitlines()
    assert "0/s of 320/s" in line
    out = io.StringIO()
    with progress(Console(file=out)) as show:
        show({"state": "running", "counts": {"total": 1}})
    assert "running  0/s  left 0" in out.getvalue()
