"""Commands against a sender: one line whatever happens, and an exit code that tells the truth."""

import json
from pathlib import Path

import httpx
import pytest
from pytest_httpx import HTTPXMock

from services.cli.app import main
from services.cli.rest import Rest, RestError

URL = "http://sender.test"
ID = "01a23291-73e8-72a4-ba13-c021787c9a78"


@pytest.fixture(autouse=True)
def _sender(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_URL", URL)
    monkeypatch.setenv("HEADRACE_KEY", "a key")


@pytest.fixture
def headrace(monkeypatch: pytest.MonkeyPatch):
    def run(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["headrace", *arguments])
        return main()

    return run


def test_halt_says_what_it_did(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    httpx_mock.add_response(method="POST", url=f"{URL}/v1/halt", json={})
    assert headrace("halt") == 0
    assert capsys.readouterr().out.startswith("Halted.")
    assert httpx_mock.get_requests()[0].headers["Authorization"] == "Bearer a key"


def test_a_refusal_is_one_line(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    problem = {"detail": "the campaign is paused", "errors": [{"field": "state", "message": "no"}]}
    httpx_mock.add_response(status_code=409, json=problem)
    assert headrace("campaign", "start", ID) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "headrace: the campaign is paused (state: no)\n"


def test_an_answer_of_something_else_is_one_line(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    httpx_mock.add_response(status_code=502, text="<html>\nbad\n</html>")
    assert headrace("unhalt") == 1
    assert capsys.readouterr().err == "headrace: POST /v1/unhalt: 502 Bad Gateway\n"


def test_a_sender_that_is_away_is_one_line(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    httpx_mock.add_exception(httpx.ConnectError("refused"))
    assert headrace("halt") == 1
    assert capsys.readouterr().err == f"headrace: {URL} does not answer (nobody listens there)\n"


def test_a_missing_setting_is_named(headrace, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.delenv("HEADRACE_KEY")
    assert headrace("halt") == 1
    assert "HEADRACE_KEY is missing" in capsys.readouterr().err


def test_migrate_needs_a_database(headrace, capsys) -> None:
    assert headrace("migrate") == 1
    assert "DATABASE_URL: is missing" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["postgresql://u:p@h:notaport/x", "mysql://u@h/x", "nonsense"])
def test_migrate_names_a_wrong_address(headrace, monkeypatch, capsys, url: str) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    assert headrace("migrate") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("headrace: DATABASE_URL: is not postgresql://")


def test_migrate_reads_a_secret_from_a_file(headrace, monkeypatch, capsys, tmp_path) -> None:
    (tmp_path / "url").write_text("postgresql://u@127.0.0.1:1/x\n")
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "url"))
    assert headrace("migrate") == 1
    assert "DATABASE_URL" not in capsys.readouterr().err  # but that nobody listens there


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HEADRACE_KEY", "schlüssel"),
        ("HEADRACE_KEY", "two\nlines"),
        ("HEADRACE_URL", "http://[::bad"),
        ("HEADRACE_URL", "sender.test:8000"),
    ],
)
def test_an_unusable_setting_is_one_line(headrace, monkeypatch, capsys, name, value) -> None:
    monkeypatch.setenv(name, value)
    assert headrace("halt") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"headrace: {name} ")
    assert value not in line


@pytest.mark.parametrize("said", ["17", "a\x01b", "", ID[:-1]])
def test_what_is_no_id_is_one_line(headrace, capsys, said: str) -> None:
    assert headrace("campaign", "start", said) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("is no id; `headrace campaign list` shows them")


def test_what_was_copied_along_with_a_setting_is_no_part_of_it(
    headrace, monkeypatch, httpx_mock: HTTPXMock
) -> None:
    monkeypatch.setenv("HEADRACE_URL", f"{URL}\n")
    monkeypatch.setenv("HEADRACE_KEY", " a key ")
    httpx_mock.add_response(method="POST", url=f"{URL}/v1/halt", json={})
    assert headrace("halt") == 0
    assert httpx_mock.get_requests()[0].headers["Authorization"] == "Bearer a key"


NUMBER = f"{URL}/v1/phone-numbers/1065"
THERE = {"waba_id": "1", "rate": 80, "headroom": 0, "portfolio_id": "9", "token": "own"}


def test_of_a_number_only_what_was_said_is_sent(headrace, httpx_mock: HTTPXMock) -> None:
    httpx_mock.add_response(method="PUT", url=NUMBER, json=THERE)
    options = ("--headroom", "0", "--token", "own", "--portfolio-id", "")
    assert headrace("number", "set", "1065", *options) == 0
    (asked,) = httpx_mock.get_requests()
    assert json.loads(asked.content) == {"headroom": 0, "token": "own", "portfolio_id": None}


def test_create_prints_the_id(headrace, httpx_mock: HTTPXMock, capsys, tmp_path: Path) -> None:
    draft = tmp_path / "draft.json"
    draft.write_text('{"name": "x"}')
    httpx_mock.add_response(method="POST", url=f"{URL}/v1/campaigns", json={"id": "0190"})
    assert headrace("campaign", "create", str(draft)) == 0
    assert capsys.readouterr().out == "0190\n"
    draft.write_text("{")
    assert headrace("campaign", "create", str(draft)) == 1


async def test_an_upload_streams_the_file(httpx_mock: HTTPXMock, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"phone\n+1\n")
    httpx_mock.add_response(json={"accepted": 1})
    async with Rest.open(URL, "k") as rest:
        assert await rest.upload(ID, file) == {"accepted": 1}
    (request,) = httpx_mock.get_requests()
    assert request.url.path == f"/v1/campaigns/{ID}/recipients"
    assert (request.headers["Content-Type"], request.content) == ("text/csv", file.read_bytes())


async def test_a_refusal_without_errors_is_told(httpx_mock: HTTPXMock) -> None:
    httpx_mock.add_response(status_code=404, json={"detail": "no such campaign", "errors": []})
    async with Rest.open(URL, "k") as rest:
        with pytest.raises(RestError, match=r"^no such campaign$"):
            await rest.get("/x")


async def test_a_refusal_says_a_thing_once(httpx_mock: HTTPXMock) -> None:
    error = {"field": "body.at", "message": "must be a time in the future"}
    problem = {"detail": "at must be a time in the future", "errors": [error]}
    httpx_mock.add_response(status_code=422, json=problem)
    async with Rest.open(URL, "k") as rest:
        with pytest.raises(RestError, match=r"^at must be a time in the future$"):
            await rest.get("/x")
