"""An audience comes in whole or not at all, and every row of it is accounted for."""

import asyncio
import csv
import io
import secrets
from uuid import UUID

import pytest
from sender_api import ADMIN_KEY, Api, people, rows
from sqlalchemy import text
from waiting import until

from services.sender.audience import load, rejects, uploads
from services.sender.audience import rows as rows_of_csv
from services.sender.audience.rows import Batch
from services.sender.campaigns import lifecycle

pytest_plugins = ["sender_server"]

DIRTY = (
    "phone,name,external_id\n"
    "+12025550123,Ana,A\n"
    "+1 202 555 0123,Ana again,B\n"
    "nonsense,Bea,C\n"
    ",\n"
    "+12025550124,Caro,A\n"
    "+12025550125,Dora,\n"
)
RUNNING = "SELECT id FROM uploads WHERE state = 'running'"
ERRORS = "SELECT error FROM uploads WHERE state = 'failed'"
LOADED = "SELECT (SELECT count(*) FROM recipients), (SELECT count(*) FROM messages)"


def balanced(answer) -> bool:
    told = answer.json()
    return told["rows"] == told["accepted"] + told["duplicate"] + told["invalid"]


async def test_every_row_is_accounted_for(api: Api, engine):
    path = await api.draft()
    answer = await api.upload(path, DIRTY)
    assert answer.status_code == 201
    told = answer.json()
    assert balanced(answer)
    assert (told["rows"], told["accepted"], told["duplicate"], told["invalid"]) == (5, 2, 1, 2)
    assert told["rejects"] == [
        {"row": 3, "reason": "duplicate"},
        {"row": 4, "reason": "phone malformed"},
        {"row": 6, "reason": "external_id is already used"},
    ]
    assert await rows(engine, "SELECT phone, external_id FROM recipients ORDER BY id") == [
        ("12025550123", "A"),
        ("12025550125", None),
    ]
    counts = (await api.get(path)).json()["counts"]
    assert (counts["pending"], counts["total"]) == (2, 2)


async def test_a_second_upload_adds_only_the_new(api: Api):
    path = await api.draft()
    await api.upload(path, people(50))
    answer = await api.upload(path, people(50, start=30))
    assert balanced(answer)
    assert (answer.json()["accepted"], answer.json()["duplicate"]) == (30, 20)
    assert (await api.get(path)).json()["counts"]["total"] == 80


async def test_campaigns_share_people(api: Api):
    for path in [await api.draft(), await api.draft()]:
        assert (await api.upload(path, people(5))).json()["accepted"] == 5


async def test_rows_are_due_in_their_order_a_microsecond_apart(api: Api, engine, monkeypatch):
    monkeypatch.setattr(load, "STEP", 7)  # several steps
    path = await api.draft()
    for start in (0, 20):
        await api.upload(path, people(30, start))
    found = await rows(
        engine,
        """
        SELECT m.due_at, r.phone, r.upload_id FROM messages m JOIN recipients r USING (id)
        ORDER BY m.id
        """,
    )
    due = [row[0] for row in found]
    assert len(due) == 50
    assert due == sorted(set(due))
    assert [row[1] for row in found] == [f"4915112{n:06}" for n in range(50)]
    first = due[:30]
    assert (first[-1] - first[0]).total_seconds() == pytest.approx(29e-6)


async def test_two_uploads_at_once_count_everybody_once(api: Api):
    path = await api.draft()
    header, *lines = people(500).splitlines()
    turned = "\n".join([header, *reversed(lines)])
    answers = await asyncio.gather(api.upload(path, people(500)), api.upload(path, turned))
    assert all(map(balanced, answers))
    assert sum(answer.json()["accepted"] for answer in answers) == 500
    assert (await api.get(path)).json()["counts"]["total"] == 500


async def test_more_uploads_than_a_process_takes_are_told_to_wait(api: Api, engine):
    path = await api.draft()
    go_on = asyncio.Event()

    async def slow():
        yield b"phone,name\n"
        await go_on.wait()
        yield b"+12025550123,Ana\n"

    headers = {"content-type": "text/csv"}
    running = [
        asyncio.create_task(api.post(f"{path}/recipients", content=slow(), headers=headers))
        for _ in range(3)
    ]
    await until(lambda: rows(engine, RUNNING), is_right=lambda found: len(found) == 3)
    answer = await api.upload(path, people(1))
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    go_on.set()
    assert sum([(await one).json()["accepted"] for one in running]) == 1
    assert (await api.upload(path, people(1))).status_code == 201


@pytest.mark.parametrize(
    ("csv", "said", "columns"),
    [
        ("name,city\nAna,Pune\n", "no column is named phone", ["name", "city"]),
        ("phone,code,Code\n", "column code appears twice", ["phone", "code", "Code"]),
        ("", "empty", None),
        ('phone,name\n+12025550123,"Ana\n', "line 2", None),
    ],
)
async def test_a_file_that_cannot_be_read_is_refused(api: Api, engine, csv, said, columns):
    path = await api.draft()
    answer = await api.upload(path, csv)
    assert answer.status_code == 422
    assert said in answer.json()["detail"]
    found = [error["columns"] for error in answer.json()["errors"] if "columns" in error]
    assert found == ([columns] if columns else [])
    assert await rows(engine, LOADED) == [(0, 0)]
    shown = (await api.get(path)).json()["uploads"]
    assert [one["state"] for one in shown] == ["failed"]
    assert answer.json()["detail"].startswith(shown[0]["error"])


async def test_a_value_that_postgres_does_not_take_is_no_fault_of_the_database(
    api: Api, engine, monkeypatch
):
    monkeypatch.setattr(rows_of_csv, "EXTERNAL_ID_LIMIT", 10_000)
    path = await api.draft()
    unpackable = secrets.token_hex(4000)
    answer = await api.upload(path, f"phone,name,external_id\n+12025550123,Ana,{unpackable}\n")
    assert answer.status_code == 422
    assert "a value cannot be stored" in answer.json()["detail"]
    assert await rows(engine, LOADED) == [(0, 0)]


@pytest.mark.parametrize("first", ["+12025550123,Ana", "Ana,Ana,(202) 555-0123", "١٢٣٤٥٦٧,Ana"])
async def test_people_in_place_of_a_header_are_not_shown(api: Api, first):
    path = await api.draft()
    answer = await api.upload(path, f"{first}\n+12025550124,Bea\n")
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("the first row is no header")
    shown = answer.text + (await api.get(path)).text
    assert not [cell for cell in first.split(",") if cell in shown]


async def test_columns_are_told_but_not_kept(api: Api):
    path = await api.draft()
    answer = await api.upload(path, "Ana,Pune\nBea,Oslo\n")
    assert answer.json()["detail"] == "no column is named phone; columns found: Ana, Pune"
    (kept,) = (await api.get(path)).json()["uploads"]
    assert kept["error"] == "no column is named phone"


async def test_a_refusal_reaches_a_client_that_is_still_sending(api: Api):
    path = await api.draft()
    csv = "name,city\n" + "Ana,Pune\n" * 2_000_000
    answer = await api.upload(path, csv)
    assert answer.status_code == 422


@pytest.mark.parametrize(
    ("headers", "taken"),
    [
        ({"content-type": "application/xml"}, "text/csv, application/x-ndjson, application/json"),
        ({"content-type": ""}, "text/csv, application/x-ndjson, application/json"),
        ({"content-encoding": "br"}, "gzip"),
        ({"content-encoding": "gzip, gzip"}, "gzip"),
    ],
)
async def test_other_types_are_refused(api: Api, headers, taken):
    path = await api.draft()
    answer = await api.upload(path, people(1), **headers)
    assert answer.status_code == 415
    assert taken in answer.json()["detail"]


async def test_a_type_may_name_its_charset(api: Api):
    path = await api.draft()
    headers = {"content-type": "text/csv; charset=utf-8"}
    assert (await api.upload(path, people(1), **headers)).status_code == 201


async def test_national_numbers_take_the_campaigns_country(api: Api):
    path = await api.draft(default_country="GB")
    answer = await api.upload(path, "phone,name\n07700 900123,Ann\n447700900123,Tom\n")
    assert (answer.json()["accepted"], answer.json()["duplicate"]) == (1, 1)


async def begun(
    api: Api, path: str, body: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """An upload that has sent `body` and promised a byte more."""
    reader, writer = await asyncio.open_connection(api.base_url.host, api.base_url.port)
    head = (
        f"POST {path}/recipients HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN_KEY}\r\n"
        f"content-type: text/csv\r\ncontent-length: {len(body) + 1}\r\n\r\n"
    )
    writer.write((head + body).encode())
    await writer.drain()
    return reader, writer


async def test_a_body_cut_in_the_middle_loads_nothing(api: Api, engine):
    path = await api.draft()
    _, writer = await begun(api, path, people(20_000))
    await until(lambda: rows(engine, RUNNING))
    writer.transport.abort()
    assert await until(lambda: rows(engine, ERRORS)) == [("interrupted",)]
    assert await rows(engine, LOADED) == [(0, 0)]
    assert (await api.get(path)).json()["counts"]["total"] == 0
    assert (await api.upload(path, people(5))).json()["accepted"] == 5


async def test_a_row_that_arrives_slowly_keeps_its_transaction_awake(api: Api, engine):
    path = await api.draft()
    async with engine.connect() as connection:
        pid = await connection.scalar(text("SELECT pg_backend_pid()"))
        campaign = await lifecycle.find(connection, UUID(path.rpartition("/")[2]))
        loading = await load.Load.begin(connection, campaign.id, 1)
        seen = f"SELECT state_change FROM pg_stat_activity WHERE pid = {pid:d}"
        before = await rows(engine, seen)
        await loading.stage(Batch())
        assert await rows(engine, seen) > before


async def test_an_idle_body_is_given_up(api: Api, engine, monkeypatch):
    monkeypatch.setattr(uploads, "IDLE_SECONDS", 0.2)
    path = await api.draft()
    reader, writer = await begun(api, path, people(10))
    assert b" 408 " in await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    assert await rows(engine, LOADED) == [(0, 0)]
    assert await rows(engine, ERRORS) == [("no data came for 0.2 s",)]


async def test_a_campaign_that_ends_meanwhile_takes_nothing(api: Api, engine):
    path = await api.draft()
    go_on = asyncio.Event()

    async def slow():
        yield people(10).encode()
        await go_on.wait()

    headers = {"content-type": "text/csv"}
    upload = asyncio.create_task(api.post(f"{path}/recipients", content=slow(), headers=headers))
    await until(lambda: rows(engine, RUNNING))
    # The upload does not keep anybody from moving the campaign.
    assert (await api.post(f"{path}/cancel")).status_code == 200
    go_on.set()
    answer = await upload
    assert answer.status_code == 409
    assert "cancelled" in answer.json()["detail"]
    assert await rows(engine, LOADED) == [(0, 0)]
    assert await rows(engine, ERRORS) == [(answer.json()["detail"],)]


async def test_a_key_that_is_revoked_meanwhile_adds_nobody(api: Api, engine):
    path = await api.draft()
    made = (await api.post("/v1/keys", json={"name": "crm", "scopes": ["operate"]})).json()

    async def slow():
        yield people(10).encode()
        await until(lambda: rows(engine, RUNNING))
        assert (await api.post(f"/v1/keys/{made['id']}/revoke")).is_success
        yield b"+12025550123,Ana\n"

    answer = await api.upload(path, slow(), authorization=f"Bearer {made['key']}")
    assert answer.status_code == 401
    assert await rows(engine, LOADED) == [(0, 0)]
    assert await rows(engine, "SELECT state FROM uploads") == [("failed",)]


async def test_an_upload_shows_that_it_lives(api: Api, engine, monkeypatch):
    monkeypatch.setattr(uploads, "HEARTBEAT_SECONDS", 0.01)
    path = await api.draft()
    _, writer = await begun(api, path, people(10))
    beats = "SELECT id FROM uploads WHERE heartbeat_at > started_at"
    await until(lambda: rows(engine, beats))
    writer.transport.abort()
    await until(lambda: rows(engine, RUNNING), is_right=lambda found: not found)


async def test_an_upload_that_was_given_up_is_not_committed(api: Api, engine):
    path = await api.draft()
    go_on = asyncio.Event()

    async def slow():
        yield people(10).encode()
        await go_on.wait()

    headers = {"content-type": "text/csv"}
    upload = asyncio.create_task(api.post(f"{path}/recipients", content=slow(), headers=headers))
    await until(lambda: rows(engine, RUNNING))
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE uploads SET state = 'failed'"))
    go_on.set()
    assert (await upload).status_code == 409
    assert await rows(engine, LOADED) == [(0, 0)]


async def test_rejects_are_a_csv_that_no_spreadsheet_runs(api: Api):
    path = await api.draft()
    first = (await api.upload(path, DIRTY)).json()["upload_id"]
    second = (await api.upload(path, "phone,name\n=1+1,Eva\n+12025550123,Ana\n")).json()[
        "upload_id"
    ]
    answer = await api.get(f"{path}/rejects")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert list(csv.reader(io.StringIO(answer.text))) == [
        ["upload_id", "row", "reason", "raw"],
        [str(first), "3", "duplicate", "'+1 202 555 0123,Ana again,B"],
        [str(first), "4", "phone malformed", "nonsense,Bea,C"],
        [str(first), "6", "external_id is already used", "'+12025550124,Caro,A"],
        [str(second), "2", "more than one number", "'=1+1,Eva"],
        [str(second), "3", "duplicate", "'+12025550123,Ana"],
    ]


async def test_a_reason_is_run_by_no_spreadsheet(api: Api):
    path = await api.draft()
    line = '{"phone": "+12025550123", "a;=1+1;b": []}'
    await api.upload(path, line, **{"content-type": "application/x-ndjson"})
    (row,) = csv.DictReader(io.StringIO((await api.get(f"{path}/rejects")).text))
    assert row["reason"] == "a;'=1+1;b is neither UTF-8 text nor a number"


async def test_only_the_first_rejects_are_in_the_answer(api: Api):
    path = await api.draft()
    answer = await api.upload(path, "phone,name\n" + "x,y\n" * 250)
    assert answer.json()["invalid"] == 250
    assert [one["row"] for one in answer.json()["rejects"]] == list(range(2, 102))
    assert len((await api.get(f"{path}/rejects")).text.splitlines()) == 251


async def test_rejects_are_written_in_small_pages_that_join(api: Api, engine):
    path, many = await api.draft(), 2 * rejects.PAGE + 1
    for _ in range(2):
        await api.upload(path, "phone,name\n" + "".join(f"x,{n}\n" for n in range(many)))
    async with engine.connect() as connection:
        campaign = await lifecycle.find(connection, UUID(path.rpartition("/")[2]))
    header, *pages = [page async for page in rejects.rejects_csv(engine, campaign)]
    # A loop that sends does nothing else while it reads a page.
    assert max(page.count("\n") for page in pages) == rejects.PAGE <= 500
    found = csv.DictReader(io.StringIO(header + "".join(pages)))
    assert [row["raw"] for row in found] == 2 * [f"x,{n}" for n in range(many)]


async def test_metadata_is_kept_and_is_no_parameter(api: Api):
    path = await api.draft()
    told = await api.upload(
        path,
        "phone;name;metadata;metadata.Clinic\n"
        '+12025550123;Ana;{"id": 7};North\n'
        "+12025550124;Bea;;\n"
        '+12025550125;Caro;"{""a"": [1]}";\n',
    )
    assert (told.json()["accepted"], told.json()["invalid"]) == (2, 1)
    assert told.json()["rejects"] == [{"row": 4, "reason": "metadata is not a flat JSON object"}]
    listed = (await api.get(f"{path}/recipients")).json()["data"]
    assert [one["metadata"] for one in listed] == [{"id": 7, "Clinic": "North"}, None]
    assert [one["parameters"] for one in listed] == [{"name": "Ana"}, {"name": "Bea"}]
