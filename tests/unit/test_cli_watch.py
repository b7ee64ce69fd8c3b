"""`headrace campaign watch`: until the end, also over a sender that restarts in between."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from pytest_httpx import HTTPXMock

from services.cli.app import main

URL = "http://sender.test"
ID = "01a23291-73e8-72a4-ba13-c021787c9a78"
CAMPAIGN = f"{URL}/v1/campaigns/{ID}"
RUNNING: dict[str, Any] = {
    "state": "running",
    "phone_number_id": "1065",
    "counts": {"total": 2, "read": 1, "pending": 1},
    "rate": 60.0,
    "holding": [],
}
COMPLETED = RUNNING | {"state": "completed", "counts": {"total": 2, "read": 2}}


@pytest.fixture
def headrace(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.setenv("HEADRACE_URL", URL)
    monkeypatch.setenv("HEADRACE_KEY", "a key")

    def run(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["headrace", *arguments])
        return main()

    return run


@pytest.fixture(autouse=True)
def _surroundings(httpx_mock: HTTPXMock) -> None:
    httpx_mock.add_response(
        url=f"{CAMPAIGN}/errors", json={"data": []}, is_reusable=True, is_optional=True
    )
    number = {"rate": 80, "headroom": 0.2, "campaign_rate": 63.4, "effective_rate": 80.0}
    httpx_mock.add_response(
        url=f"{URL}/v1/phone-numbers/1065", json=number, is_reusable=True, is_optional=True
    )


def test_it_ends_with_the_campaign(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    httpx_mock.add_response(url=CAMPAIGN, json=RUNNING)
    httpx_mock.add_response(url=CAMPAIGN, json=COMPLETED)
    assert headrace("campaign", "watch", ID) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "running  60/s of 63.4/s  left 1" in shown[0]
    assert shown[-1] == f"Campaign {ID} is completed."


def test_the_last_answer_is_all_that_a_script_gets(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    httpx_mock.add_response(url=CAMPAIGN, json=COMPLETED)
    assert headrace("campaign", "watch", ID, "--json") == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == COMPLETED
    assert "completed" in shown.err


@pytest.mark.parametrize("status", [None, 502, 503])
def test_a_sender_that_restarts_does_not_end_it(
    headrace, httpx_mock: HTTPXMock, capsys, status: int | None
) -> None:
    httpx_mock.add_response(url=CAMPAIGN, json=RUNNING)
    if status is None:
        httpx_mock.add_exception(httpx.ConnectError("refused"), url=CAMPAIGN)
    else:
        httpx_mock.add_response(url=CAMPAIGN, status_code=status)
    httpx_mock.add_response(url=CAMPAIGN, json=COMPLETED)
    assert headrace("campaign", "watch", ID) == 0
    assert capsys.readouterr().out.count("; trying again") == 1


def test_a_mistake_is_told_at_once(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    httpx_mock.add_exception(httpx.ConnectError("refused"), url=CAMPAIGN)
    assert headrace("campaign", "watch", ID) == 1
    assert capsys.readouterr().err == f"headrace: {URL} does not answer (nobody listens there)\n"


def test_what_is_refused_on_the_way_ends_it(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    httpx_mock.add_response(url=CAMPAIGN, json=RUNNING)
    httpx_mock.add_response(url=CAMPAIGN, status_code=401, json={"detail": "no", "errors": []})
    assert headrace("campaign", "watch", ID) == 1
    assert capsys.readouterr().err == "headrace: no\n"
