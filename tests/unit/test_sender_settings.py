"""The sender's settings: what is wrong is named in one line."""

import pytest

from services.sender.settings import Role, SenderSettings
from shared.settings import SettingsError

RIGHT = {
    "DATABASE_URL": "postgresql://db",
    "REDIS_URL": "redis://redis",
    "HEADRACE_ACCESS_TOKEN": "TEST-TOKEN-01",
    "HEADRACE_ADMIN_KEY": "0123456789abcdef",
}


@pytest.fixture(autouse=True)
def _right(monkeypatch):
    for name, value in RIGHT.items():
        monkeypatch.setenv(name, value)


def test_defaults():
    settings = SenderSettings.load()
    assert settings.graph_url == "https://graph.facebook.com"
    assert settings.graph_version == "v25.0"
    assert settings.roles == set(Role)
    assert settings.least_unknown_window_s == 180


def test_allowed_recipients_are_prefixes_and_not_shown(monkeypatch):
    assert SenderSettings.load().allowed_recipients is None
    monkeypatch.setenv("HEADRACE_ALLOWED_RECIPIENTS", "+44 7400 123456, +49")
    settings = SenderSettings.load()
    assert settings.allowed_recipients == ("447400123456.", "49")
    assert "7400" not in repr(settings)


def test_allowed_recipients_come_from_a_file_too(monkeypatch, tmp_path):
    (tmp_path / "allowed").write_text("+44 7400 123456\n")
    monkeypatch.setenv("HEADRACE_ALLOWED_RECIPIENTS_FILE", str(tmp_path / "allowed"))
    assert SenderSettings.load().allowed_recipients == ("447400123456.",)


@pytest.mark.parametrize("path", ["", "/nowhere/allowed"])
def test_a_file_that_is_not_there_allows_nobody(monkeypatch, path):
    monkeypatch.setenv("HEADRACE_ALLOWED_RECIPIENTS_FILE", path)
    with pytest.raises(SettingsError, match=r"^HEADRACE_ALLOWED_RECIPIENTS_FILE: cannot read"):
        SenderSettings.load()


def test_roles_are_split(monkeypatch):
    monkeypatch.setenv("HEADRACE_ROLES", "api, worker")
    assert SenderSettings.load().roles == {Role.API, Role.WORKER}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("HEADRACE_ROLES", "api,wroker", "HEADRACE_ROLES: .*wroker.*api, worker, orchestrator"),
        ("HEADRACE_ROLES", " , ", "HEADRACE_ROLES: .*empty"),
        ("HEADRACE_KEEP_WEBHOOKS_DAYS", "7", "HEADRACE_KEEP_WEBHOOKS_DAYS: .*8"),
        ("HEADRACE_ADMIN_KEY", "short", "HEADRACE_ADMIN_KEY: .*16 characters"),
        ("HEADRACE_ACCESS_TOKEN", "", "HEADRACE_ACCESS_TOKEN: is empty"),
        ("REDIS_URL", "", "REDIS_URL: is empty"),
        ("DATABASE_URL", "", "DATABASE_URL: is empty"),
        ("HEADRACE_GRAPH_URL", "graph.facebook.com", "HEADRACE_GRAPH_URL: .*https://"),
        ("HEADRACE_GRAPH_VERSION", "25", "HEADRACE_GRAPH_VERSION: "),
        ("HEADRACE_LEASE_S", "60", "HEADRACE_LEASE_S: .*at least 70"),
        ("HEADRACE_CONCURRENCY", "0", "HEADRACE_CONCURRENCY: "),
        ("HEADRACE_ALLOWED_RECIPIENTS", "", "HEADRACE_ALLOWED_RECIPIENTS: is empty"),
        ("HEADRACE_ALLOWED_RECIPIENTS", " , ", "HEADRACE_ALLOWED_RECIPIENTS: is empty"),
        ("HEADRACE_ALLOWED_RECIPIENTS", "+49,all", "HEADRACE_ALLOWED_RECIPIENTS: entry 2"),
        ("HEADRACE_ACCESS_TOKEN", "  ", "HEADRACE_ACCESS_TOKEN: is empty"),
        ("HEADRACE_ACCESS_TOKEN", "TEST\nTOKEN", "HEADRACE_ACCESS_TOKEN: holds a line end"),
        ("HEADRACE_ACCESS_TOKEN", "tökén", "HEADRACE_ACCESS_TOKEN: .*header"),
        ("HEADRACE_ADMIN_KEY", " " * 17, "HEADRACE_ADMIN_KEY: is empty"),
        ("HEADRACE_ADMIN_KEY", "short" + " " * 17, "HEADRACE_ADMIN_KEY: must have at least"),
        ("REDIS_URL", "nonsense", "REDIS_URL: is not redis://"),
        ("REDIS_URL", "http://redis:6379", "REDIS_URL: is not redis://"),
        ("REDIS_URL", "redis://redis:notaport", "REDIS_URL: is not redis://"),
        ("REDIS_URL", " ", "REDIS_URL: is empty"),
        ("DATABASE_URL", "mysql://u@h/x", "DATABASE_URL: is not postgresql://"),
        ("DATABASE_URL", "postgresql://u:p@h:notaport/x", "DATABASE_URL: is not postgresql://"),
        ("DATABASE_URL", "postgresql://u:p@[::h/x", "DATABASE_URL: is not postgresql://"),
    ],
)
def test_a_wrong_setting_is_named_in_one_line(monkeypatch, name, value, said):
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=said) as raised:
        SenderSettings.load()
    assert "\n" not in str(raised.value)
    assert "Value error" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REDIS_URL", "rediss://:secret@redis:6380/1"),
        ("REDIS_URL", "unix:///run/redis.sock?db=1"),
        ("DATABASE_URL", "postgresql://postgres@/db?host=/socket/folder&port=5432"),
        ("DATABASE_URL", "postgres://u:p%23@[::1]:6432/x"),
    ],
)
def test_addresses_come_in_many_forms(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert SenderSettings.load()


def test_space_around_a_secret_is_none_of_it(monkeypatch):
    monkeypatch.setenv("HEADRACE_ACCESS_TOKEN", " TEST-TOKEN-02\n")
    assert SenderSettings.load().token_for(None) == "TEST-TOKEN-02"


@pytest.mark.parametrize(
    ("value", "said"), [(" ", "is empty"), ("a\rb", "holds a line end"), ("tökén", "header")]
)
def test_tokens_of_numbers_must_be_usable(monkeypatch, value, said):
    settings = SenderSettings.load()
    monkeypatch.setenv("HEADRACE_ACCESS_TOKEN_CLINIC", value)
    with pytest.raises(SettingsError, match=f"^HEADRACE_ACCESS_TOKEN_CLINIC: .*{said}"):
        settings.token_for("clinic")


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_secret_has_a_default(monkeypatch, name):
    monkeypatch.delenv(name)
    with pytest.raises(SettingsError, match=f"^{name}: is missing"):
        SenderSettings.load()


def test_secrets_are_not_shown(monkeypatch):
    monkeypatch.setenv("HEADRACE_ADMIN_KEY", "hunter2")
    with pytest.raises(SettingsError) as raised:
        SenderSettings.load()
    assert "hunter2" not in str(raised.value)
    monkeypatch.undo()
    for name, value in RIGHT.items():
        monkeypatch.setenv(name, value)
    shown = repr(SenderSettings.load())
    assert not any(value in shown for value in RIGHT.values())


def test_tokens_of_numbers(monkeypatch, tmp_path):
    settings = SenderSettings.load()
    assert settings.token_for(None) == "TEST-TOKEN-01"
    monkeypatch.setenv("HEADRACE_ACCESS_TOKEN_CLINIC", "TEST-TOKEN-02")
    assert settings.token_for("clinic") == "TEST-TOKEN-02"
    (tmp_path / "token").write_text("TEST-TOKEN-03\n")
    monkeypatch.setenv("HEADRACE_ACCESS_TOKEN_CLINIC_FILE", str(tmp_path / "token"))
    assert settings.token_for("clinic") == "TEST-TOKEN-03"
    with pytest.raises(SettingsError, match="HEADRACE_ACCESS_TOKEN_SHOP: is missing"):
        settings.token_for("shop")


@pytest.mark.parametrize("name", [None, "clinic"])
def test_au_01_a_token_in_a_file_is_read_each_time(monkeypatch, tmp_path, name):
    variable = "HEADRACE_ACCESS_TOKEN" + ("_CLINIC" if name else "")
    secret = tmp_path / "secret"
    secret.write_text("TEST-TOKEN-04\n")
    monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(f"{variable}_FILE", str(secret))
    if name:
        monkeypatch.setenv("HEADRACE_ACCESS_TOKEN", "TEST-TOKEN-01")
    settings = SenderSettings.load()
    assert settings.token_for(name) == "TEST-TOKEN-04"

    secret.write_text("TEST-TOKEN-05")
    assert settings.token_for(name) == "TEST-TOKEN-05"
    for wrong in ("", "tökén", "TEST\nTOKEN"):
        secret.write_text(wrong)
        with pytest.raises(SettingsError, match=f"^{variable}: "):
            settings.token_for(name)
    secret.unlink()
    with pytest.raises(SettingsError, match=f"^{variable}_FILE: cannot read"):
        settings.token_for(name)
