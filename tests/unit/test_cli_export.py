"""`headrace campaign export`: the whole of it, or an error and no file."""

import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
import pytest
from pytest_httpx import HTTPXMock, IteratorStream

from services.cli.app import main

URL = "http://sender.test"
ID = "01a23291-73e8-72a4-ba13-c021787c9a78"
EXPORT = f"{URL}/v1/campaigns/{ID}/export?format="
ROWS = b"phone,status\n+447400123456,read\n"


@pytest.fixture
def headrace(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.setenv("HEADRACE_URL", URL)
    monkeypatch.setenv("HEADRACE_KEY", "a key")

    def run(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["headrace", "campaign", *arguments])
        return main()

    return run


@pytest.fixture
def export(headrace: Callable[..., int]) -> Callable[..., int]:
    return partial(headrace, "export", ID)


def test_it_goes_to_the_standard_output(export, httpx_mock: HTTPXMock, capsysbinary) -> None:
    httpx_mock.add_response(url=f"{EXPORT}csv", content=ROWS)
    assert export() == 0
    assert capsysbinary.readouterr().out == ROWS


def test_a_file_is_for_the_user_alone(export, httpx_mock: HTTPXMock, tmp_path: Path) -> None:
    httpx_mock.add_response(url=f"{EXPORT}ndjson", content=b"{}\n")
    file = tmp_path / "people.ndjson"
    assert export("--format", "ndjson", "--output", str(file)) == 0
    assert file.read_bytes() == b"{}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_rejects_too(headrace, httpx_mock: HTTPXMock, capsys, tmp_path: Path) -> None:
    httpx_mock.add_response(
        url=f"{URL}/v1/campaigns/{ID}/rejects", content=b"row,reason\n", is_reusable=True
    )
    file = tmp_path / "rejects.csv"
    assert headrace("rejects", ID) == 0
    assert capsys.readouterr().out == "row,reason\n"
    assert headrace("rejects", ID, "--output", str(file)) == 0
    assert file.read_bytes() == b"row,reason\n"


def cut_short():
    yield ROWS
    raise httpx.RemoteProtocolError("peer closed connection")


def test_one_cut_short_leaves_no_file(
    export, httpx_mock: HTTPXMock, capsys, tmp_path: Path
) -> None:
    httpx_mock.add_response(stream=IteratorStream(cut_short()))
    file = tmp_path / "people.csv"
    file.write_text("the one before")
    assert export("--output", str(file)) == 1
    assert "does not answer" in capsys.readouterr().err
    assert [one.read_text() for one in tmp_path.iterdir()] == ["the one before"]


def test_a_refusal_is_told(export, httpx_mock: HTTPXMock, capsys) -> None:
    problem = {"detail": "there is no campaign with this id", "errors": []}
    httpx_mock.add_response(status_code=404, json=problem)
    assert export() == 1
    assert capsys.readouterr().err.endswith(": there is no campaign with this id\n")
