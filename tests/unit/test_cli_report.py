"""The demo's end: what it prints, and an exit code that is 0 only when everything agrees."""

import io
import json
from dataclasses import replace

import click
import pytest
from rich.console import Console

from services.cli.app import headrace
from services.cli.comparison import Acceptance, Comparison
from services.cli.demo import close, weather_troubles
from services.cli.progress import funnel
from services.cli.report import Report, achieved_rate
from services.cli.weather import NAMED
from shared.domain.tokens import Token

CLEAN = Report(
    recipients=100,
    rejects={"duplicate": 1, "invalid": 2},
    steps=funnel({"accepted": 1, "sent": 2, "delivered": 3, "read": 90, "failed": 3, "unknown": 1}),
    errors={"130429": 4},
    rate_configured=400,
    rate_achieved=390.04,
    max_in_one_second=400,
    seconds=12.34,
    comparison=Comparison(),
)
PLANTED = [
    Comparison(lost=(7,)),
    Comparison(doubled=(7,)),
    Comparison(wrong_status=(7,)),
    Comparison(wrong_wamid=(7,)),
    Comparison(unknown_missing=(7,)),
    Comparison(unknown_extra=(7,)),
    Comparison(strays=(7,)),
]


def end_of(report: Report, *, as_json: bool) -> tuple[int, str]:
    out = io.StringIO()
    with click.Context(headrace), pytest.raises(click.exceptions.Exit) as ended:
        close(report, Console(file=out, width=200), as_json=as_json)
    return ended.value.exit_code, out.getvalue()


def test_a_clean_run_ends_with_0() -> None:
    code, shown = end_of(CLEAN, as_json=False)
    assert code == 0
    assert shown.rstrip().endswith("After 12 s: clean")


@pytest.mark.parametrize("planted", PLANTED)
def test_any_disagreement_ends_with_1(planted: Comparison) -> None:
    code, shown = end_of(replace(CLEAN, comparison=planted), as_json=False)
    assert code == 1
    assert "rows 7" in shown
    assert "not clean" in shown


def test_trouble_beside_the_comparison_ends_with_1() -> None:
    code, shown = end_of(replace(CLEAN, troubles=("upload: 9 invalid, expected 8",)), as_json=False)
    assert code == 1
    assert "upload: 9 invalid" in shown


def test_json_is_one_object_with_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = end_of(replace(CLEAN, comparison=Comparison(lost=(7, 8))), as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (code, shown) == (1, "")
    assert told["accepted"] + told["failed"] + told["unknown"] == told["recipients"] == 100
    assert told["delivered"] == 93
    assert told["rejected"] == 3
    assert (told["lost"], told["doubled"], told["ids"]) == (2, 0, {"lost": [7, 8]})
    assert told["rate_configured"] == 400
    assert told["rate_achieved"] == 390.0
    assert told["max_in_one_second"] == 400
    assert told["seconds"] == 12.3


def test_weather_that_was_not_met_is_trouble() -> None:
    met = dict.fromkeys(NAMED, 100)
    assert weather_troubles(met, 10_000) == []
    assert weather_troubles(met | {"stall": 99}, 10_000) == [
        "stall was met 99 times, expected at least 100"
    ]
    assert [line.split()[0] for line in weather_troubles({}, 5_000)] == list(NAMED)
    assert weather_troubles({}, 4_999) == []


def accepted(at: float, attempt: int = 1) -> Acceptance:
    return Acceptance(Token("0" * 32, 1, attempt), "+1", "w", at)


def test_the_rate_is_that_of_the_main_run() -> None:
    run = [accepted(second / 10) for second in range(11)]
    assert achieved_rate(run) == pytest.approx(10)
    assert achieved_rate([*run, accepted(0.55, attempt=2)]) == pytest.approx(11)
    assert achieved_rate([*run, accepted(30.0, attempt=2)]) == pytest.approx(10)
    assert achieved_rate(run[:1]) == 0
