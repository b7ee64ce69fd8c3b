"""A scenario that cannot be meant is refused; the calm one does nothing wrong."""

from typing import Any

import pytest
from pydantic import ValidationError

from services.simulator.scenario import Scenario
from services.simulator.settings import SimulatorSettings
from shared.settings import SettingsError


def test_the_default_is_calm() -> None:
    calm = Scenario()
    assert (calm.throughput, calm.throttle_episodes, calm.pair_limit) == (None, None, None)
    assert (calm.errors, calm.ambiguous, calm.webhooks.failed) == ((), (), ())
    hooks = calm.webhooks
    assert (hooks.lost_share, hooks.repeated_share, hooks.reorder_share, hooks.early_share) == (
        (0,) * 4
    )


@pytest.mark.parametrize(
    ("scenario", "told"),
    [
        ({"throughtput": 80}, "throughtput"),
        ({"webhooks": {"lost": 0.1}}, "lost"),
        ({"errors": [{"code": 999_999, "share": 0.1}]}, "not in the table"),
        ({"errors": [{"code": 131026, "share": 1.5}]}, "less than or equal to 1"),
        ({"errors": [{"code": 131026, "share": 0.7}, {"code": 131000, "share": 0.7}]}, "more than"),
        ({"ambiguous": [{"kind": "reset", "share": 0.7}] * 2}, "more than"),
        ({"ambiguous": [{"kind": "shrug", "share": 0.1}]}, "shrug"),
        ({"ambiguous": [{"kind": "reset", "share": 0.1, "stall_s": 1}]}, "kind stall"),
        (
            {"ambiguous": [{"kind": "stall", "share": 0.1, "stall_s": 1, "accepted": False}]},
            "accepted the message",
        ),
        ({"throttle_episodes": {"every_s": 1, "for_s": 1}}, "below every_s"),
        ({"webhooks": {"batch": 1001}}, "less than or equal to 1000"),
        ({"webhooks": {"url": "https://example.org/"}}, "http://host"),
        ({"seed": -1}, "greater than or equal to 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(scenario: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Scenario.model_validate(scenario)


def test_settings_need_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_APP_SECRETS", raising=False)
    with pytest.raises(SettingsError, match="HEADRACE_APP_SECRETS: is missing"):
        SimulatorSettings.load()


@pytest.mark.parametrize("secrets", ["", " ", ",second"])
def test_an_empty_first_secret_is_none(monkeypatch: pytest.MonkeyPatch, secrets: str) -> None:
    monkeypatch.setenv("HEADRACE_APP_SECRETS", secrets)
    with pytest.raises(SettingsError, match="HEADRACE_APP_SECRETS"):
        SimulatorSettings.load()


def test_the_first_of_several_secrets_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_APP_SECRETS", "first, second")
    assert SimulatorSettings.load().signing_secret == "first"


def test_a_webhook_url_from_the_environment_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_APP_SECRETS", "first")
    monkeypatch.setenv("HEADRACE_SIM_WEBHOOK_URL", "ftp://somewhere")
    with pytest.raises(SettingsError, match="HEADRACE_SIM_WEBHOOK_URL"):
        SimulatorSettings.load()
