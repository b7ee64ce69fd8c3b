"""JSON and compressed uploads end as the CSV of the same rows does."""

import gzip
import json
import os

import pytest
from sender_api import Api, people, rows

pytest_plugins = ["sender_server"]

PEOPLE = [
    {"phone": "+12025550123", "name": "Ana", "external_id": "A", "metadata": {"id": 7}},
    {"phone": "+1 202 555 0123", "name": "Ana again", "external_id": "B"},
    {"phone": "nonsense", "name": "=1+1", "external_id": "C"},
    {"phone": "+12025550124", "name": "Bea", "external_id": "A"},
    {"phone": 12025550125, "name": 3, "external_id": None},
    {"phone": "+12025550126", "n": "no name"},
]
NDJSON = {"content-type": "application/x-ndjson"}
JSON = {"content-type": "application/json"}
GZIP = {"content-encoding": "gzip"}
LINES = "".join(json.dumps(one) + "\n" for one in PEOPLE).encode()
ARRAY = json.dumps(PEOPLE).encode()
KEPT = "SELECT phone, external_id, parameters::text, metadata::text FROM recipients ORDER BY id"


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (LINES, NDJSON),
        (ARRAY, {"content-type": "application/json; charset=utf-8"}),
        (gzip.compress(LINES), NDJSON | GZIP),
        (gzip.compress(ARRAY), JSON | GZIP),
    ],
)
async def test_every_row_is_accounted_for(api: Api, engine, body, headers):
    path = await api.draft()
    answer = await api.upload(path, body, **headers)
    assert answer.status_code == 201, answer.text
    told = answer.json()
    assert (told["rows"], told["accepted"], told["duplicate"], told["invalid"]) == (6, 2, 1, 3)
    assert told["rejects"] == [
        {"row": 2, "reason": "duplicate"},
        {"row": 3, "reason": "phone malformed"},
        {"row": 4, "reason": "external_id is already used"},
        {"row": 6, "reason": "no value for name"},
    ]
    assert await rows(engine, KEPT) == [
        ("12025550123", "A", '{"name": "Ana"}', '{"id": 7}'),
        ("12025550125", None, '{"name": "3"}', None),
    ]
    assert (await api.get(path)).json()["counts"]["pending"] == 2


async def test_a_compressed_csv_of_several_pieces(api: Api):
    path = await api.draft()
    answer = await api.upload(path, gzip.compress(people(20_000).encode()), **GZIP)
    assert answer.json()["accepted"] == 20_000, answer.text


@pytest.mark.parametrize("headers", [NDJSON, JSON])
async def test_a_long_file_of_several_pieces(api: Api, headers):
    found = [{"phone": f"+4915112{n:06}", "name": "x" * 100} for n in range(6000)]
    lines = "\n".join(map(json.dumps, found))
    body = lines if headers is NDJSON else json.dumps(found)
    path = await api.draft()
    assert (await api.upload(path, body, **headers)).json()["accepted"] == 6000


@pytest.mark.parametrize(
    ("body", "headers", "said"),
    [
        (LINES, JSON, "no JSON array"),
        (ARRAY, NDJSON, "a JSON array is application/json"),
        (ARRAY[:-1], JSON, "the file ends within it"),
        (LINES, NDJSON | GZIP, "not what gzip writes"),
        (gzip.compress(os.urandom(500))[:-1], NDJSON | GZIP, "ends early"),
        (gzip.compress(b"\n" * (8 << 20)), NDJSON | GZIP, "more than 200 times"),
    ],
)
async def test_a_file_that_cannot_be_read_is_refused(api: Api, engine, body, headers, said):
    path = await api.draft()
    answer = await api.upload(path, body, **headers)
    assert answer.status_code == 422
    assert said in answer.json()["detail"]
    (upload,) = (await api.get(path)).json()["uploads"]
    assert upload["state"] == "failed"
    assert said in upload["error"]
    assert await rows(engine, "SELECT count(*) FROM recipients") == [(0,)]


async def test_an_array_that_is_too_large_is_told_the_other_format(api: Api, monkeypatch):
    monkeypatch.setattr("services.sender.audience.elements.ARRAY_LIMIT", 1 << 20)
    path = await api.draft()
    body = json.dumps([{"phone": "+12025550123", "name": "x" * 1000}] * 1100)
    answer = await api.upload(path, body, **JSON)
    assert answer.status_code == 413
    assert "application/x-ndjson" in answer.json()["detail"]


async def test_the_same_compressed_body_gets_the_same_answer(api: Api):
    path = await api.draft()
    headers = NDJSON | GZIP | {"idempotency-key": "k"}
    body = gzip.compress(LINES)
    first, again = [await api.upload(path, body, **headers) for _ in range(2)]
    assert (first.status_code, again.json()) == (201, first.json())
    other = await api.upload(path, gzip.compress(LINES + b"\n"), **headers)
    assert other.status_code == 422
