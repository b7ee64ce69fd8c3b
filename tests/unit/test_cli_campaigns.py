"""`headrace campaign` and `number`: what they ask the API, what they say, and how they end."""

import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pytest_httpx import HTTPXMock

from services.cli.app import main
from services.cli.times import local

URL = "http://sender.test"
ID = "01a23291-73e8-72a4-ba13-c021787c9a78"
CAMPAIGN = f"{URL}/v1/campaigns/{ID}"
NUMBER = f"{URL}/v1/phone-numbers/1065"
AT = "2026-05-03T08:00:00Z"
TOLD: dict[str, Any] = {
    "id": ID,
    "name": "Reminders",
    "state": "completed",
    "pause_reason": None,
    "phone_number_id": "1065",
    "created_at": AT,
    "started_at": AT,
    "counts": {"total": 5, "read": 2, "failed": 1, "pending": 1, "unknown": 1},
    "holding": [],
    "uploads": [],
}
NO_MORE = {"data": [], "next_cursor": None}
PROBLEM = {"reason": "no_recipients", "detail": "it has nobody", "cure": "upload some"}
CHECKED: dict[str, Any] = {
    "ready": True,
    "problems": [],
    "warnings": [],
    "people": 20_000,
    "opted_out": 3,
    "not_allowed": 0,
    "rate": 64.0,
    "seconds": 312.5,
    "ends_at": AT,
    "webhooks_seen_at": None,
}
SET = {
    "phone_number_id": "1065",
    "waba_id": "1",
    "rate": 80,
    "headroom": 0.2,
    "state": "active",
    "paused_reason": None,
    "paused_until": None,
}

PERSON: dict[str, Any] = {
    "id": 7,
    "phone": "447400131026",
    "external_id": "A\x1b[31m",
    "status": "failed",
    "error_code": 131026,
    "error_title": "Message undeliverable",
    "reason": "meta",
    **dict.fromkeys(("due_at", "claimed_at", "accepted_at", "sent_at", "delivered_at", "read_at")),
    "failed_at": AT,
}


@pytest.fixture
def headrace(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.setenv("HEADRACE_URL", URL)
    monkeypatch.setenv("HEADRACE_KEY", "a key")

    def run(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["headrace", *arguments])
        return main()

    return run


def page(*found: Mapping[str, Any], cursor: str | None = None) -> dict[str, Any]:
    return {"data": found, "next_cursor": cursor}


def sent(httpx_mock: HTTPXMock) -> Any:
    return json.loads(httpx_mock.get_requests()[-1].content)


@pytest.mark.parametrize(
    "case",
    [
        (("halt",), "POST", f"{URL}/v1/halt", {"halted": True}),
        (("unhalt",), "POST", f"{URL}/v1/unhalt", {"halted": False}),
        (("campaign", "create", "FILE"), "POST", f"{URL}/v1/campaigns", {"id": ID}),
        (("campaign", "check", ID), "POST", f"{CAMPAIGN}/check", CHECKED),
        (("campaign", "start", ID), "POST", f"{CAMPAIGN}/start", TOLD),
        (("campaign", "pause", ID), "POST", f"{CAMPAIGN}/pause", {"state": "paused"}),
        (("campaign", "close", ID), "POST", f"{CAMPAIGN}/close", {"state": "running"}),
        (
            ("campaign", "retry", ID, "--status", "failed"),
            "POST",
            f"{CAMPAIGN}/retry",
            {"requeued": 2},
        ),
        (
            ("campaign", "settle", ID, "--as", "failed"),
            "POST",
            f"{CAMPAIGN}/settle",
            {"settled": 2},
        ),
        (("number", "pause", "1065"), "POST", f"{NUMBER}/pause", SET),
        (
            ("campaign", "upload", ID, "FILE"),
            *("POST", f"{CAMPAIGN}/recipients"),
            {"accepted": 1, "duplicate": 0, "invalid": 1, "rejects": [{"row": 2, "reason": "é"}]},
        ),
    ],
)
def test_json_is_the_answer(headrace, httpx_mock: HTTPXMock, capsys, tmp_path: Path, case) -> None:
    command, method, url, answer = case
    file = tmp_path / "file.csv"
    file.write_text("{}")
    httpx_mock.add_response(method=method, url=url, json=answer)
    given = [str(file) if word == "FILE" else word for word in command]
    assert headrace(*given, "--json") == 0
    assert json.loads(capsys.readouterr().out) == answer


@pytest.mark.parametrize(
    "case",
    [
        (("campaign", "list"), f"{URL}/v1/campaigns?limit=20", TOLD),
        (("campaign", "recipients", ID), f"{CAMPAIGN}/recipients?limit=20", PERSON),
        (("number", "list"), f"{URL}/v1/phone-numbers?limit=1000", SET),
    ],
)
def test_a_list_as_json_is_a_list(headrace, httpx_mock: HTTPXMock, capsys, case) -> None:
    command, url, one = case
    httpx_mock.add_response(url=url, json=page(one))
    assert headrace(*command, "--json") == 0
    assert json.loads(capsys.readouterr().out) == [one]


def test_a_set_number_is_told_as_json(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    httpx_mock.add_response(method="PUT", url=NUMBER, json=SET | {"rate": 5})
    assert headrace("number", "set", "1065", "--rate", "5", "--json") == 0
    assert json.loads(capsys.readouterr().out)["rate"] == 5


def test_a_set_number_says_what_campaigns_may_use(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    httpx_mock.add_response(method="PUT", url=NUMBER, json=SET | {"campaign_rate": 63.37})
    assert headrace("number", "set", "1065", "--rate", "80") == 0
    told = "campaigns send 63.37 of its 80 messages a second, 20% is kept free."
    assert capsys.readouterr().out == f"Number 1065 is set: {told}\n"


def test_numbers_are_listed_with_what_campaigns_may_use(
    headrace, httpx_mock: HTTPXMock, capsys
) -> None:
    paused = {"state": "paused", "paused_reason": "throttled", "paused_until": AT}
    slowed = {"campaign_rate": 63.36, "effective_rate": 20}
    httpx_mock.add_response(json=page(SET, SET | paused | slowed))
    assert headrace("number", "list") == 0
    plain, slow = capsys.readouterr().out.splitlines()
    assert plain.split() == ["1065", "1", "64/s", "of", "80/s", "active"]
    assert slow.split()[2:] == [
        "15.84/s",
        "of",
        "80/s",
        "paused",
        "(throttled)",
        "until",
        *local(AT).split(),
    ]


def test_a_check_says_what_it_takes(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    warning = {"reason": "halted", "detail": None, "cure": "POST /v1/unhalt"}
    httpx_mock.add_response(json=CHECKED | {"warnings": [warning]})
    assert headrace("campaign", "check", ID) == 0
    ready, warned, people = capsys.readouterr().out.splitlines()
    assert ready == "It may start."
    assert warned == "  warning: halted (cure: headrace unhalt)"
    assert people.startswith("People: 20,000, 3 opted out. At 64/s that takes 5 min 12 s, until ")


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_a_check_fails_when_it_may_not_start(headrace, httpx_mock: HTTPXMock, option) -> None:
    httpx_mock.add_response(json=CHECKED | {"ready": False, "problems": [PROBLEM]})
    assert headrace("campaign", "check", ID, *option) == 1


def test_a_refused_start_names_every_problem_with_its_cure(
    headrace, httpx_mock: HTTPXMock, capsys
) -> None:
    other = {"reason": "expired", "detail": "since May", "cure": "PATCH it"}
    refusal = {"detail": "it may not start", "errors": [], "problems": [PROBLEM, other]}
    httpx_mock.add_response(status_code=409, json=refusal)
    assert headrace("campaign", "start", ID) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"headrace: campaign {ID} may not start:",
        "  no_recipients: it has nobody (cure: upload some)",
        "  expired: since May (cure: PATCH it)",
    ]


def test_a_start_at_a_time(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    httpx_mock.add_response(json=TOLD | {"state": "scheduled", "start_at": AT})
    at = "2027-05-03T08:00:00+02:00"
    assert headrace("campaign", "start", ID, "--at", at, "--keep-open") == 0
    assert sent(httpx_mock) == {"keep_open": True, "at": at}
    assert f"Campaign {ID} is scheduled for 2026-05-0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("at", "complaint"),
    [("2027-05-03T08:00", "has no zone"), ("2027-05-03", "has no zone"), ("soon", "is no time")],
)
def test_a_time_without_a_zone_is_refused(headrace, capsys, at: str, complaint: str) -> None:
    assert headrace("campaign", "start", ID, "--at", at) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


@pytest.mark.parametrize(
    "case",
    [
        ("a.csv", (), "text/csv", None),
        ("a.TXT", (), "text/csv", None),
        ("a.ndjson", (), "application/x-ndjson", None),
        ("a.b.jsonl", (), "application/x-ndjson", None),
        ("a.json", (), "application/json", None),
        ("a.csv.gz", (), "text/csv", "gzip"),
        ("a.ndjson.gz", (), "application/x-ndjson", "gzip"),
        ("a.data", ("--format", "ndjson"), "application/x-ndjson", None),
        ("a.gz", ("--format", "csv"), "text/csv", "gzip"),
    ],
)
def test_a_file_is_sent_as_what_its_name_says(
    headrace, httpx_mock: HTTPXMock, tmp_path: Path, case
) -> None:
    name, options, kind, encoding = case
    file = tmp_path / name
    file.write_bytes(gzip.compress(b"x") if encoding else b"x")
    counts = {"accepted": 1, "duplicate": 0, "invalid": 0, "rejects": []}
    httpx_mock.add_response(url=f"{CAMPAIGN}/recipients", json=counts)
    assert headrace("campaign", "upload", ID, str(file), *options) == 0
    (request,) = httpx_mock.get_requests()
    assert request.headers["Content-Type"] == kind
    assert request.headers.get("Content-Encoding") == encoding
    assert request.content == file.read_bytes()


@pytest.mark.parametrize("name", ["people.data", "people", "people.gz"])
def test_a_file_that_does_not_say_what_it_is(headrace, capsys, tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert headrace("campaign", "upload", ID, str(tmp_path / name)) == 2
    complaint = f"headrace: {name} does not say what it is: add --format csv|ndjson|json\n"
    assert capsys.readouterr().err == complaint


def test_a_workbook_is_not_sent_as_text(headrace, capsys, tmp_path: Path) -> None:
    (tmp_path / "people.XLSX").touch()
    assert headrace("campaign", "upload", ID, str(tmp_path / "people.XLSX")) == 2
    assert capsys.readouterr().err == "headrace: people.XLSX is a workbook: save it as CSV UTF-8\n"


def test_a_report_for_people(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    upload = {"accepted": 4, "duplicate": 1, "invalid": 2, "state": "failed", "error": "cut off"}
    told = TOLD | {"uploads": [upload | {"started_at": AT}]}
    error = {"code": 131026, "title": "Message undeliverable", "met": 1200}
    httpx_mock.add_response(url=CAMPAIGN, json=told)
    httpx_mock.add_response(url=f"{CAMPAIGN}/errors", json=page(error))
    assert headrace("campaign", "report", ID) == 0
    shown = capsys.readouterr().out
    lines = [line.split() for line in shown.splitlines()]
    assert shown.startswith("Reminders: completed\n")
    for line in (
        "read 2 40.0 %",
        "accepted 2 40.0 %",
        "failed 1 20.0 %",
        "waiting 1 20.0 %",
        "1,200 131026 Message undeliverable",
    ):
        assert line.split() in lines
    assert "4 accepted, 1 duplicate, 2 invalid (failed: cut off)" in shown
    assert f"headrace campaign recipients {ID} --status failed" in shown
    assert f"headrace campaign recipients {ID} --status unknown" in shown


def test_a_report_as_json_is_the_campaign(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    httpx_mock.add_response(url=CAMPAIGN, json=TOLD)
    httpx_mock.add_response(url=f"{CAMPAIGN}/errors", json=NO_MORE)
    assert headrace("campaign", "report", ID, "--json") == 0
    assert json.loads(capsys.readouterr().out) == TOLD


def test_recipients_are_listed_over_short_pages(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    path, wanted = f"{CAMPAIGN}/recipients", "status=failed&error_code=131026"
    httpx_mock.add_response(url=f"{path}?{wanted}&limit=2", json=page(PERSON, cursor="x"))
    httpx_mock.add_response(url=f"{path}?{wanted}&limit=1&cursor=x", json=page(cursor="y"))
    httpx_mock.add_response(url=f"{path}?{wanted}&limit=1&cursor=y", json=page(PERSON, cursor="z"))
    options = ("--status", "failed", "--error-code", "131026", "--limit", "2")
    assert headrace("campaign", "recipients", ID, *options) == 0
    shown = capsys.readouterr()
    assert shown.err == "Only the first 2: --limit 20 shows more.\n"
    first, second = shown.out.splitlines()
    # What a caller named somebody must not steer the terminal.
    assert (
        first
        == second
        == ("       7  +447400131026     failed     131026 Message undeliverable  A\ufffd[31m")
    )


def test_a_whole_list_says_nothing_of_more(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    httpx_mock.add_response(json=page(PERSON))
    assert headrace("campaign", "recipients", ID, "--json") == 0
    assert capsys.readouterr().err == ""


def test_refused_rows_are_told_by_reason(
    headrace, httpx_mock: HTTPXMock, capsys, tmp_path: Path
) -> None:
    file = tmp_path / "people.csv"
    file.touch()
    rejects = [{"row": row, "reason": "not UTF-8 text"} for row in range(2, 101)]
    rejects.append({"row": 101, "reason": "no number"})
    told = {"accepted": 1, "duplicate": 1, "invalid": 1300, "rejects": rejects}
    httpx_mock.add_response(json=told)
    assert headrace("campaign", "upload", ID, str(file)) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "99 rows (2, 3, 4, 5, 6, …): not UTF-8 text",
        "row 101: no number",
        "and 1,201 more rows",
        f"All of them, as they came: headrace campaign rejects {ID}",
    ]


@pytest.mark.parametrize(("duplicate", "code"), [(0, 1), (1, 0)])
def test_a_file_of_nothing_but_refused_rows_is_a_failure(
    headrace, httpx_mock: HTTPXMock, capsys, tmp_path: Path, duplicate: int, code: int
) -> None:
    file = tmp_path / "people.csv"
    file.touch()
    told = {"accepted": 0, "duplicate": duplicate, "invalid": 2, "rejects": []}
    httpx_mock.add_response(json=told)
    assert headrace("campaign", "upload", ID, str(file)) == code
    assert ("nobody was added" in capsys.readouterr().err) is bool(code)


@pytest.mark.parametrize(
    ("place", "words", "state"),
    [
        (CAMPAIGN, ("campaign", "pause", ID), "paused"),
        (CAMPAIGN, ("campaign", "resume", ID), "running"),
        (NUMBER, ("number", "pause", "1065"), "paused"),
    ],
)
def test_a_step_that_was_made_before_is_refused_in_plain_words(
    headrace, httpx_mock: HTTPXMock, capsys, place, words, state
) -> None:
    refusal = {"detail": "it is paused and its audience is closed", "errors": []}
    httpx_mock.add_response(method="POST", status_code=409, json=refusal, is_reusable=True)
    httpx_mock.add_response(method="GET", url=place, json={"state": state})
    assert headrace(*words) == 1
    assert capsys.readouterr().err == f"headrace: it is {state} already\n"
    httpx_mock.add_response(method="GET", url=place, json={"state": "completed"})
    assert headrace(*words) == 1
    assert "its audience is closed" in capsys.readouterr().err


def test_one_recipient_is_shown_with_what_meta_said(
    headrace, httpx_mock: HTTPXMock, capsys
) -> None:
    attempt = {
        "attempt": 1,
        "outcome": "failed",
        "error_code": 131026,
        "error_title": "Message undeliverable",
        "details": "Not on WhatsApp",
    }
    httpx_mock.add_response(url=f"{CAMPAIGN}/recipients/7", json=PERSON | {"attempts": [attempt]})
    assert headrace("campaign", "recipient", ID, "7") == 0
    _, failed, said = capsys.readouterr().out.splitlines()
    assert failed.split()[0] == "failed"
    assert said == "  attempt 1: failed: 131026 Message undeliverable (Not on WhatsApp)"


def test_a_retry_goes_on_to_its_end(headrace, httpx_mock: HTTPXMock, capsys) -> None:
    url = f"{CAMPAIGN}/retry"
    httpx_mock.add_response(url=url, json={"requeued": 5000, "next_cursor": "x"})
    httpx_mock.add_response(url=url, json={"requeued": 10, "next_cursor": None})
    codes = ("--error-code", "131026", "--error-code", "131000", "--settled")
    assert headrace("campaign", "retry", ID, "--status", "failed", *codes) == 0
    first, second = (json.loads(request.content) for request in httpx_mock.get_requests())
    assert first == {"status": "failed", "error_codes": [131026, 131000], "settled": True}
    assert second == first | {"cursor": "x"}
    assert capsys.readouterr().out == "5,010 wait to be sent again.\n"


@pytest.mark.parametrize(
    ("command", "count"),
    [
        (("retry", ID, "--status", "failed"), "requeued"),
        (("settle", ID, "--as", "failed"), "settled"),
    ],
)
def test_what_is_cut_off_says_how_far_it_came(
    headrace, httpx_mock: HTTPXMock, capsys, command, count
) -> None:
    url = f"{CAMPAIGN}/{command[0]}"
    httpx_mock.add_response(url=url, json={count: 5000, "next_cursor": "x"})
    problem = {"detail": "the campaign is cancelled", "errors": []}
    httpx_mock.add_response(url=url, status_code=409, json=problem)
    assert headrace("campaign", *command) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert f"5,000 were {count} before it was cut off." in told.err
    assert "the campaign is cancelled" in told.err


@pytest.mark.parametrize("options", [(), ("--status", "read")])
def test_a_retry_says_of_what(headrace, capsys, options) -> None:
    assert headrace("campaign", "retry", ID, *options) == 2
    assert "--status" in capsys.readouterr().err
