"""What a watcher sees: steps that hold the later ones, and nothing that floods a log."""

import io

from rich.console import Console

from services.cli.progress import funnel, progress

CAMPAIGN = {
    "state": "running",
    "counts": {"total": 10, "pending": 3, "sent": 2, "read": 4, "unknown": 1},
    "holding": [{"reason": "number paused"}],
}


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
    out = io.StringIO()
    with progress(Console(file=out, force_terminal=False)) as show:
        for _ in range(20):
            show(CAMPAIGN)
    (line,) = out.getvalue().splitlines()
    assert "left 3  accepted 6" in line
    assert line.endswith("(number paused)")


def test_on_a_terminal_it_is_a_live_table() -> None:
    out = io.StringIO()
    with progress(Console(file=out, force_terminal=True, width=100)) as show:
        show(CAMPAIGN)
    assert "holding: number paused" in out.getvalue()
