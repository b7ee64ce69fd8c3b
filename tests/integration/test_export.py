"""Every recipient leaves in the export once, exactly or made harmless, in pages."""

import csv
import io
import json
from uuid import uuid4

import pytest
from sender_api import Api, add_key, people
from sqlalchemy import text

from services.sender.audience import exports
from services.sender.audience.exports import COLUMNS, ExportFormat, export
from services.sender.campaigns import lifecycle

pytest_plugins = ["sender_server"]

ROWS = (
    "phone,name,external_id,metadata\n"
    '+12025550123,Ana,=1+1,"{""id"": 7, ""note"": ""=2""}"\n'
    "+12025550124,Bea,,\n"
    "+12025550125,Caro,é-3,\n"
)
MET = text("""
UPDATE messages m SET status = CAST(f.status AS message_status), due_at = NULL, wamid = f.wamid,
    error_code = f.code, accepted_at = '2026-05-01 10:00:00.5+02', attempt = f.attempt
FROM (VALUES ('Ana', 'delivered', 'wamid.A', NULL, 1), ('Bea', 'failed', NULL, 131026, 3))
    AS f (name, status, wamid, code, attempt)
JOIN recipients r ON r.parameters ->> 'name' = f.name
WHERE m.id = r.id
""")


async def planted(api: Api, engine) -> str:
    path = await api.draft()
    assert (await api.upload(path, ROWS)).json()["accepted"] == 3
    async with engine.begin() as connection:
        await connection.execute(MET)
    return path


def read(answer) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(answer.text)))


async def test_csv_says_what_became_of_everybody(api: Api, engine):
    path = await planted(api, engine)
    answer = await api.get(f"{path}/export")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    name = f"campaign-{path.rpartition('/')[2]}.csv"
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
    assert answer.text.splitlines()[0] == ",".join(f'"{column}"' for column in COLUMNS)
    ana, bea, caro = read(answer)
    assert ana["phone"] == "12025550123"
    assert (ana["status"], ana["attempt"], ana["wamid"]) == ("delivered", "1", "wamid.A")
    assert (ana["accepted_at"], ana["read_at"]) == ("2026-05-01T08:00:00.500000Z", "")
    assert (bea["status"], bea["error_code"], bea["attempt"]) == ("failed", "131026", "3")
    assert bea["error_title"]
    assert (bea["external_id"], bea["metadata"]) == ("", "")
    assert (caro["status"], caro["attempt"], caro["spent"]) == ("pending", "1", "0")
    assert caro["due_at"]
    assert caro["external_id"] == "é-3"


async def test_ndjson_says_the_same_exactly(api: Api, engine):
    path = await planted(api, engine)
    answer = await api.get(f"{path}/export", params={"format": "ndjson"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["content-disposition"].endswith('.ndjson"')
    found = [json.loads(line) for line in answer.text.splitlines()]
    assert [tuple(one) for one in found] == [COLUMNS] * 3
    assert (found[0]["external_id"], found[0]["metadata"]) == ("=1+1", {"id": 7, "note": "=2"})
    assert (found[1]["external_id"], found[1]["metadata"]) == (None, None)
    assert found[1]["error_code"] == 131026
    for exact, cell in zip(found, read(await api.get(f"{path}/export")), strict=True):
        told = {"external_id", "metadata"} ^ set(COLUMNS)
        assert {k: "" if exact[k] is None else str(exact[k]) for k in told} == {
            k: cell[k] for k in told
        }


async def test_no_cell_is_run_by_a_spreadsheet(api: Api, engine):
    path = await planted(api, engine)
    ana = read(await api.get(f"{path}/export"))[0]
    assert ana["external_id"] == "'=1+1"
    assert json.loads(ana["metadata"]) == {"id": 7, "note": "=2"}  # within a cell, not at its start


@pytest.mark.parametrize("kind", ["csv", "ndjson"])
async def test_pages_join_without_a_seam(api: Api, monkeypatch, kind):
    monkeypatch.setattr(exports, "PAGE", 7)
    other, path = await api.draft(), await api.draft()
    for place, (start, count) in enumerate([(0, 10), (10, 11)]):
        await api.upload(path, people(count, start))
        await api.upload(other, people(5, 100 * place))  # ids of another campaign in between
    answer = await api.get(f"{path}/export", params={"format": kind})
    lines = answer.text.splitlines()[1 if kind == "csv" else 0 :]
    assert len(lines) == 21
    assert all(f"4915112{n:06}" in line for n, line in enumerate(lines))


async def test_no_connection_is_held_while_the_client_reads(api: Api, engine, monkeypatch):
    monkeypatch.setattr(exports, "PAGE", 2)
    path = await api.draft()
    await api.upload(path, people(5))
    (found,) = (await api.get("/v1/campaigns")).json()["data"]
    async with engine.connect() as connection:
        campaign = await lifecycle.find(connection, found["id"])
    held = engine.pool.checkedout()
    pages = export(engine, campaign, ExportFormat.NDJSON)
    sizes = []
    async for page in pages:
        assert engine.pool.checkedout() == held
        sizes.append(page.count("\n"))
    assert sizes == [2, 2, 1]


async def test_a_campaign_without_recipients(api: Api):
    path = await api.draft()
    assert read(await api.get(f"{path}/export")) == []
    assert (await api.get(f"{path}/export", params={"format": "ndjson"})).text == ""


async def test_what_cannot_be_exported(api: Api, engine):
    path = await api.draft()
    assert (await api.get(f"{path}/export", params={"format": "xlsx"})).status_code == 422
    assert (await api.get(f"/v1/campaigns/{uuid4()}/export")).status_code == 404
    await add_key(engine, "a-key-that-only-reads", "read")
    api.headers["authorization"] = "Bearer a-key-that-only-reads"
    assert (await api.get(f"{path}/export")).status_code == 200
    del api.headers["authorization"]
    assert (await api.get(f"{path}/export")).status_code == 401
