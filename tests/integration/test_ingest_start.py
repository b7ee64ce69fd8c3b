"""What ingest needs to start: each missing setting is one line that names it."""

import pytest
from waiting import until

from services.ingest.settings import IngestSettings
from shared.settings import SettingsError

APP = "services.ingest.app:create_app"
GOOD = {
    "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
    "HEADRACE_APP_SECRETS": "first, second",
    "HEADRACE_VERIFY_TOKEN": "token",
}


@pytest.fixture
def environment(monkeypatch):
    def set_all(**change: str | None) -> None:
        for name, value in (GOOD | change).items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)

    return set_all


def test_good_settings(environment):
    environment()
    settings = IngestSettings.load()
    assert settings.secrets == ["first", "second"]
    assert "first" not in repr(settings)


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_or_empty_setting_is_named(environment, name, value):
    environment(**{name: value})
    with pytest.raises(SettingsError, match=name) as caught:
        IngestSettings.load()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("secrets", ["  ", "hidden,", ",hidden", "hidden,,two", "hidden, ,two"])
def test_an_empty_entry_would_let_everybody_in(environment, secrets):
    environment(HEADRACE_APP_SECRETS=secrets)
    with pytest.raises(SettingsError, match="HEADRACE_APP_SECRETS") as caught:
        IngestSettings.load()
    assert "hidden" not in str(caught.value)


def test_secrets_come_from_files_too(environment, monkeypatch, tmp_path):
    environment(HEADRACE_APP_SECRETS=None)
    (tmp_path / "secrets").write_text("three,four\n")
    monkeypatch.setenv("HEADRACE_APP_SECRETS_FILE", str(tmp_path / "secrets"))
    assert IngestSettings.load().secrets == ["three", "four"]


async def test_the_process_ends_with_one_line(processes):
    env = GOOD | {"HEADRACE_VERIFY_TOKEN": ""}
    process = await processes.start("ingest", APP, env, ready=False)
    assert await until(process.poll, 30, is_right=lambda code: code is not None) == 1
    lines = process.last_lines(50).splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("HEADRACE_VERIFY_TOKEN")
