"""`headrace keys`: made, listed and revoked."""

import json
from collections.abc import Callable

import pytest
from pytest_httpx import HTTPXMock

from services.cli.app import main
from services.cli.times import local

URL = "http://sender.test"
KEYS = f"{URL}/v1/keys"
SINCE, USED = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


@pytest.fixture(autouse=True)
def _sender(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_URL", URL)
    monkeypatch.setenv("HEADRACE_KEY", "a key")


@pytest.fixture
def headrace(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    def run(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["headrace", *arguments])
        return main()

    return run


def key(
    number: int, name: str, revoked_at: str | None = None, used_at: str | None = None
) -> dict[str, object]:
    return {
        "id": number,
        "name": name,
        "scopes": ["read"],
        "created_at": SINCE,
        "last_used_at": used_at,
        "revoked_at": revoked_at,
    }


def page(*keys: dict[str, object], cursor: str | None = None) -> dict[str, object]:
    return {"data": keys, "next_cursor": cursor}


def test_a_new_key_is_all_that_is_printed(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    httpx_mock.add_response(method="POST", url=KEYS, json={"id": 7, "key": "headrace_abc"})
    assert headrace("keys", "create", "billing", "--scope", "read") == 0
    assert capsys.readouterr().out == "headrace_abc\n"
    sent = json.loads(httpx_mock.get_requests()[0].content)
    assert sent == {"name": "billing", "scopes": ["read"]}


def test_the_list_goes_on_to_its_end(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    httpx_mock.add_response(
        url=f"{KEYS}?limit=1000", json=page(key(1, "admin", used_at=USED), cursor="1")
    )
    httpx_mock.add_response(
        url=f"{KEYS}?limit=1000&cursor=1", json=page(key(2, "billing", "2026-02-02T00:00:00Z"))
    )
    assert headrace("keys", "list") == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.split() == ["1", "admin", "read", *f"{local(SINCE)} used {local(USED)}".split()]
    revoked = f"{local(SINCE)} never used revoked {local('2026-02-02T00:00:00Z')}"
    assert second.split() == ["2", "billing", "read", *revoked.split()]


@pytest.mark.parametrize("said", ["billing", "3"])
def test_a_key_is_revoked_by_name_or_id(headrace, httpx_mock: HTTPXMock, capsys, said) -> None:
    keys = page(key(2, "billing", SINCE), key(3, "billing"))
    httpx_mock.add_response(url=f"{KEYS}?limit=1000", json=keys)
    httpx_mock.add_response(method="POST", url=f"{KEYS}/3/revoke", json=key(3, "billing", SINCE))
    assert headrace("keys", "revoke", said) == 0
    assert capsys.readouterr().out == "Key billing is revoked.\n"


@pytest.mark.parametrize(
    ("said", "complaint"), [("2", "no valid key"), ("cash", "no valid key"), ("twin", "(4, 5)")]
)
def test_what_is_not_one_valid_key_is_not_revoked(
    headrace, httpx_mock: HTTPXMock, capsys, said, complaint
) -> None:
    keys = page(key(2, "billing", SINCE), key(4, "twin"), key(5, "twin"))
    httpx_mock.add_response(url=f"{KEYS}?limit=1000", json=keys)
    assert headrace("keys", "revoke", said) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line
