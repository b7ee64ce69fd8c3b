"""API keys over the API: shown once, stored hashed, ended at once."""

import asyncio

import pytest
from pydantic import SecretStr
from sender_api import ADMIN_KEY, SETTINGS, Api, rows
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from waiting import until

from services.sender.api.keys import ensure_admin_key

pytest_plugins = ["sender_server"]

NEW = {"name": "billing", "scopes": ["operate"]}


async def create(api: Api, **changes: object) -> dict[str, object]:
    answer = await api.post("/v1/keys", json=NEW | changes)
    assert answer.status_code == 201, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


def bearer(made: dict[str, object]) -> dict[str, str]:
    return {"authorization": f"Bearer {made['key']}"}


async def test_a_new_key_may_what_its_scope_says(api: Api):
    made = await create(api)
    allowed = await api.post("/v1/unhalt", headers=bearer(made))
    refused = await api.get("/v1/keys", headers=bearer(made))
    assert (allowed.status_code, refused.status_code) == (200, 403)


async def test_a_key_is_shown_once_and_stored_hashed(api: Api, engine):
    made = await create(api)
    listed = await api.get("/v1/keys")
    assert made["key"] not in listed.text
    assert [(key["name"], key["scopes"]) for key in listed.json()["data"]][1:] == [
        ("billing", ["operate"])
    ]
    assert str(made["key"]) not in str(await rows(engine, "TABLE api_keys"))


async def test_a_revoked_key_ends_at_once_and_stays_in_the_list(api: Api):
    made = await create(api)
    assert (await api.post(f"/v1/keys/{made['id']}/revoke")).json()["revoked_at"]
    assert (await api.get("/v1/campaigns", headers=bearer(made))).status_code == 401
    assert (await api.post(f"/v1/keys/{made['id']}/revoke")).status_code == 409
    assert (await api.get("/v1/keys")).json()["data"][1]["revoked_at"]
    assert (await api.post("/v1/keys/999999999/revoke")).status_code == 404


async def test_nobody_locks_himself_out(api: Api):
    own = (await api.get("/v1/keys")).json()["data"][0]["id"]
    assert (await api.post(f"/v1/keys/{own}/revoke")).status_code == 409
    other = await create(api, scopes=["admin"])
    answer = await api.post(f"/v1/keys/{own}/revoke", headers=bearer(other))
    assert answer.status_code == 200


async def test_a_name_means_one_valid_key(api: Api):
    answers = await asyncio.gather(*(api.post("/v1/keys", json=NEW) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]
    made = next(answer.json() for answer in answers if answer.status_code == 201)
    await api.post(f"/v1/keys/{made['id']}/revoke")
    assert (await create(api))["id"] != made["id"]


async def test_a_repeat_makes_no_second_key_and_keeps_no_key(api: Api, engine):
    headers = {"idempotency-key": "once"}
    first = await api.post("/v1/keys", json=NEW, headers=headers)
    again = await api.post("/v1/keys", json=NEW, headers=headers)
    assert again.status_code == 201
    assert again.json() == first.json() | {"key": None}
    stored = str(await rows(engine, "SELECT body FROM idempotency_keys"))
    assert "billing" in stored
    assert first.json()["key"] not in stored


async def test_the_list_comes_in_pages(api: Api):
    made = [(await create(api, name=f"key {number}"))["id"] for number in range(3)]
    first = (await api.get("/v1/keys", params={"limit": 2})).json()
    rest = (await api.get("/v1/keys", params={"cursor": first["next_cursor"]})).json()
    assert [key["id"] for key in first["data"] + rest["data"]][1:] == made
    assert rest["next_cursor"] is None


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "admin"},
        {"name": "a\nb"},
        {"scopes": []},
        {"scopes": ["root"]},
        {"key": "my-own"},
    ],
)
async def test_what_is_no_key_is_refused(api: Api, changes):
    assert (await api.post("/v1/keys", json=NEW | changes)).status_code == 422


async def last_used(api: Api, name: str) -> str | None:
    listed = (await api.get("/v1/keys")).json()["data"]
    return next(key["last_used_at"] for key in listed if key["name"] == name)


async def test_the_list_says_when_a_key_was_last_used(api: Api):
    made = await create(api)
    assert made["last_used_at"] is None
    assert await last_used(api, "billing") is None

    # Also a request that is refused has used its key.
    assert (await api.get("/v1/keys", headers=bearer(made))).status_code == 403

    first = await until(lambda: last_used(api, "billing"))
    # Within its minute no request writes it again.
    await asyncio.gather(*(api.get("/v1/campaigns", headers=bearer(made)) for _ in range(10)))
    assert await last_used(api, "billing") == first


async def test_a_request_does_not_wait_for_its_keys_use_to_be_written(api: Api, engine):
    made = await create(api)
    async with engine.begin() as connection:
        await connection.execute(text("SELECT FROM api_keys WHERE name = 'billing' FOR UPDATE"))
        answer = await asyncio.wait_for(api.get("/v1/campaigns", headers=bearer(made)), 5)
        assert answer.status_code == 200
        await until(lambda: rows(engine, WAITING), is_right=lambda found: found[0][0] == 1)
    await until(lambda: last_used(api, "billing"))


WAITING = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND wait_event_type = 'Lock' AND query LIKE 'UPDATE api_keys SET last_used_at%'
"""


async def test_another_key_in_the_environment_ends_the_one_before(api: Api, engine):
    made = await create(api, scopes=["admin"])
    await set_admin_key(engine, "the-next-admin-key-of-the-tests")
    assert (await api.get("/v1/keys")).status_code == 401
    listed = (await api.get("/v1/keys", headers=bearer(made))).json()["data"]
    valid = [key["name"] for key in listed if key["revoked_at"] is None]
    assert sorted(valid) == ["admin", "billing"]
    # A sender with the old one brings it back, and only that.
    await set_admin_key(engine, ADMIN_KEY)
    headers = {"authorization": "Bearer the-next-admin-key-of-the-tests"}
    assert (await api.get("/v1/keys", headers=headers)).status_code == 401
    assert (await api.get("/v1/keys")).status_code == 200


async def test_a_made_key_set_in_the_environment_ends_with_its_setting(api: Api, engine):
    made = await create(api)
    await set_admin_key(engine, str(made["key"]))
    assert (await api.get("/v1/keys", headers=bearer(made))).status_code == 200
    await set_admin_key(engine, ADMIN_KEY)
    assert (await api.get("/v1/keys", headers=bearer(made))).status_code == 401


async def test_senders_that_start_at_once_with_other_keys_leave_one(engine: AsyncEngine):
    await asyncio.gather(*(set_admin_key(engine, f"admin-key-number-{n:03}") for n in range(6)))
    valid = "SELECT count(*) FROM api_keys WHERE revoked_at IS NULL"
    assert await rows(engine, valid) == [(1,)]


async def set_admin_key(engine: AsyncEngine, key: str) -> None:
    settings = SETTINGS.model_copy(update={"admin_key": SecretStr(key)})
    await ensure_admin_key(engine, settings)
