"""Every setting of a service is in the README's table, beside the service."""

import re
from pathlib import Path

import pytest

from services.ingest.settings import IngestSettings
from services.sender.settings import SenderSettings
from services.simulator.settings import SimulatorSettings
from shared.settings import Settings, variable

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
ROWS = [line.split("|")[1:3] for line in README.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize(
    ("service", "settings"),
    [("sender", SenderSettings), ("ingest", IngestSettings), ("simulator", SimulatorSettings)],
)
def test_the_readme_names_every_setting(service: str, settings: type[Settings]) -> None:
    told = {
        name
        for names, parts in ROWS
        if {service, "all"} & set(parts.strip().split(", "))
        for name in re.findall(r"`(\w+)`", names)
    }

    assert {variable(name, field) for name, field in settings.model_fields.items()} <= told
