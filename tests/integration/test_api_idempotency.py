"""A repeated POST does its work once."""

import asyncio

import pytest
from sender_api import Api, add_key, campaign, people, rows
from sqlalchemy import text
from waiting import until

from services.sender.api.keys import Scope

pytest_plugins = ["sender_server"]

KEY = {"Idempotency-Key": "order-1"}
CAMPAIGNS = "SELECT count(*) FROM campaigns"


async def create(api: Api, **changes: object):
    return await api.post("/v1/campaigns", json=campaign(**changes), headers=KEY)


async def test_the_same_request_gets_the_stored_answer(api: Api, engine):
    await api.register()
    first, second = await create(api), await create(api)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert second.headers["idempotency-replayed"] == "true"
    assert await rows(engine, CAMPAIGNS) == [(1,)]


async def test_another_body_is_refused(api: Api, engine):
    await api.register()
    await create(api)
    assert (await create(api, name="other")).status_code == 422
    assert await rows(engine, CAMPAIGNS) == [(1,)]


async def test_another_call_with_the_same_key_is_refused(api: Api):
    path = await api.draft()
    await create(api)
    assert (await api.post(f"{path}/start", headers=KEY)).status_code == 422


async def test_keys_belong_to_their_api_key(api: Api, engine):
    await api.register()
    await create(api)
    await add_key(engine, "another-key-of-the-api", Scope.OPERATE)
    api.headers["authorization"] = "Bearer another-key-of-the-api"
    assert (await create(api)).status_code == 201
    assert await rows(engine, CAMPAIGNS) == [(2,)]


async def test_a_refused_request_may_be_repeated(api: Api):
    assert (await create(api)).status_code == 422
    await api.register()
    assert (await create(api)).status_code == 201


async def test_after_a_day_a_key_is_new(api: Api, engine):
    await api.register()
    await create(api)
    async with engine.begin() as connection:
        old = "UPDATE idempotency_keys SET created_at = now() - interval '25 hours'"
        await connection.execute(text(old))
    assert (await create(api, name="other")).status_code == 201
    assert (await create(api, name="other")).headers["idempotency-replayed"] == "true"
    assert await rows(engine, CAMPAIGNS) == [(2,)]


async def test_while_the_first_runs_the_second_is_told_to_wait(api: Api, engine):
    path = await api.draft()
    go_on = asyncio.Event()

    async def body():
        yield b"phone,name\n+12025550123,Ana\n"
        await go_on.wait()
        yield b"+12025550124,Bea\n"

    headers = {"content-type": "text/csv", **KEY}
    upload = api.post(f"{path}/recipients", content=body(), headers=headers)
    first = asyncio.create_task(upload)
    await until(lambda: rows(engine, "SELECT id FROM uploads"))  # written under the key's lock
    second = await create(api)
    assert second.status_code == 409
    assert second.headers["retry-after"] == "1"
    go_on.set()
    assert (await first).json()["accepted"] == 2
    assert await rows(engine, CAMPAIGNS) == [(1,)]


async def test_twenty_at_once_create_one(api: Api, engine):
    await api.register()
    answers = await asyncio.gather(*(create(api) for _ in range(20)))
    assert {answer.status_code for answer in answers} <= {201, 409}
    made = {answer.json()["id"] for answer in answers if answer.status_code == 201}
    assert len(made) == 1
    assert await rows(engine, CAMPAIGNS) == [(1,)]


async def test_an_upload_is_replayed(api: Api, engine):
    path = await api.draft()
    csv = "phone,name\n+12025550123,Ana\nx,Bea\n"
    first = await api.upload(path, csv, **KEY)
    second = await api.upload(path, csv, **KEY)
    assert first.json() == second.json()
    assert second.headers["idempotency-replayed"] == "true"
    assert (await api.upload(path, csv + "+12025550124,Caro\n", **KEY)).status_code == 422
    assert await rows(engine, "SELECT count(*) FROM uploads") == [(1,)]


async def test_a_repeated_upload_keeps_no_connection_while_it_arrives(api: Api, narrow_api: Api):
    path, csv = await api.draft(), people(2).encode()
    await api.upload(path, csv, **KEY)

    async def slowly():
        yield csv[:20]
        for _ in range(5):  # after the first ones the repeated upload has surely begun
            assert (await narrow_api.get(path)).status_code == 200
        yield csv[20:]

    answer = await narrow_api.upload(path, slowly(), **KEY)
    assert (answer.status_code, answer.json()["accepted"]) == (201, 2)
    assert answer.headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize(
    "other", [{"content-type": "application/x-ndjson"}, {"content-encoding": "gzip"}]
)
async def test_the_same_bytes_of_another_type_are_another_upload(api: Api, other):
    path = await api.draft()
    assert (await api.upload(path, people(2), **KEY)).status_code == 201
    assert (await api.upload(path, people(2), **KEY, **other)).status_code == 422
    same = {"content-type": "Text/CSV; charset=utf-8", "content-encoding": "identity"}
    assert (await api.upload(path, people(2), **KEY, **same)).status_code == 201


async def test_a_start_is_replayed(api: Api):
    path = await api.draft()
    await api.upload(path, "phone,name\n+12025550123,Ana\n")
    first = await api.post(f"{path}/start", headers=KEY)
    second = await api.post(f"{path}/start", headers=KEY)
    assert (first.status_code, second.status_code) == (200, 200)
    assert (await api.post(f"{path}/start")).status_code == 409


async def test_an_empty_key_is_refused(api: Api):
    await api.register()
    answer = await api.post("/v1/campaigns", json=campaign(), headers={"Idempotency-Key": ""})
    assert answer.status_code == 422
