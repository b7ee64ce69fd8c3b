"""Keys: who may do what."""

import pytest
from sender_api import ADMIN_KEY, NUMBER, SETTINGS, Api, add_key, rows
from sqlalchemy import text
from structlog.testing import capture_logs

from services.sender.api.keys import Scope, ensure_admin_key

pytest_plugins = ["sender_server"]

CAMPAIGN = "/v1/campaigns/01a231d7-c616-7ce5-b476-b59daa2946ae"
READ, OPERATE, ADMIN = range(3)
CALLS = [
    ("GET", "/v1/phone-numbers", READ),
    ("GET", f"/v1/phone-numbers/{NUMBER}", READ),
    ("GET", "/v1/messages/1", READ),
    ("GET", "/v1/campaigns", READ),
    ("GET", CAMPAIGN, READ),
    ("GET", f"{CAMPAIGN}/events", READ),
    ("GET", f"{CAMPAIGN}/errors", READ),
    ("GET", f"{CAMPAIGN}/rejects", READ),
    ("GET", f"{CAMPAIGN}/timeline", READ),
    ("GET", f"{CAMPAIGN}/export", READ),
    ("GET", f"{CAMPAIGN}/recipients", READ),
    ("GET", f"{CAMPAIGN}/recipients/1", READ),
    ("POST", f"{CAMPAIGN}/check", READ),
    ("POST", "/v1/campaigns", OPERATE),
    ("PATCH", CAMPAIGN, OPERATE),
    ("GET", "/v1/halt", READ),
    ("POST", "/v1/halt", OPERATE),
    ("POST", "/v1/unhalt", OPERATE),
    ("POST", f"/v1/phone-numbers/{NUMBER}/pause", OPERATE),
    ("POST", f"/v1/phone-numbers/{NUMBER}/resume", OPERATE),
    ("POST", f"/v1/phone-numbers/{NUMBER}/messages", OPERATE),
    *(
        ("POST", f"{CAMPAIGN}/{move}", OPERATE)
        for move in ("start", "pause", "resume", "cancel", "close", "recipients", "retry", "settle")
    ),
    ("PUT", f"/v1/phone-numbers/{NUMBER}", ADMIN),
    ("POST", "/v1/keys", ADMIN),
    ("GET", "/v1/keys", ADMIN),
    ("POST", "/v1/keys/1/revoke", ADMIN),
]


@pytest.mark.parametrize(("method", "path", "_least"), CALLS)
async def test_nothing_without_a_key(api: Api, method, path, _least):
    del api.headers["authorization"]
    for header in (None, "Bearer wrong-key-of-nobody", "Basic eDp5", "Bearer"):
        headers = {"authorization": header} if header else None
        answer = await api.request(method, path, headers=headers)
        assert answer.status_code == 401, header
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.headers["content-type"] == "application/problem+json"


async def test_the_list_of_calls_is_whole(api: Api):
    """A new route must be added to `CALLS`, or nobody has thought about its scope."""
    paths = (await api.get("/openapi.json")).json()["paths"]
    assert sum(len(methods) for methods in paths.values()) == len(CALLS)


@pytest.mark.parametrize(("method", "path", "least"), CALLS)
async def test_scopes_include_the_lower_ones(api: Api, engine, method, path, least):
    for rank, scope in enumerate(Scope):
        await add_key(engine, f"a-key-of-scope-{scope}", scope)
        api.headers["authorization"] = f"Bearer a-key-of-scope-{scope}"
        answer = await api.request(method, path)
        if rank < least:
            assert answer.status_code == 403
            assert list(Scope)[least] in answer.json()["detail"]
        else:
            assert answer.status_code not in (401, 403), answer.text


async def test_a_key_without_scopes_may_nothing(api: Api, engine):
    await add_key(engine, "a-key-without-scopes")
    api.headers["authorization"] = "Bearer a-key-without-scopes"
    assert (await api.get("/v1/campaigns")).status_code == 403


async def test_a_revoked_key_is_no_key(api: Api, engine):
    await add_key(engine, "a-revoked-key", Scope.ADMIN)
    api.headers["authorization"] = "Bearer a-revoked-key"
    assert (await api.get("/v1/campaigns")).status_code == 200
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE api_keys SET revoked_at = now()"))
    assert (await api.get("/v1/campaigns")).status_code == 401


async def test_the_first_key_is_made_once_and_stored_hashed(engine):
    await ensure_admin_key(engine, SETTINGS)
    await ensure_admin_key(engine, SETTINGS)
    found = await rows(engine, "SELECT name, digest, scopes FROM api_keys")
    assert [(name, scopes) for name, _, scopes in found] == [("admin", list(Scope))]
    assert ADMIN_KEY.encode() not in bytes(found[0][1])


async def test_health_is_open(api: Api):
    del api.headers["authorization"]
    for path in ("/healthz", "/readyz", "/metrics"):
        assert (await api.get(path)).status_code == 200


@pytest.mark.parametrize("path", ["/v1/campaigns/", "/v1/phone-numbers/", "/nowhere"])
async def test_what_is_nowhere_is_404(api: Api, path):
    for method in ("GET", "POST"):
        answer = await api.request(method, path)
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"


async def test_the_log_says_who_did_what_no_campaign_tells(api: Api):
    number = f"/v1/phone-numbers/{NUMBER}"
    with capture_logs() as logs:
        await api.register(rate=7)
        for path in ("/v1/halt", "/v1/unhalt", f"{number}/pause", f"{number}/resume"):
            assert (await api.post(path)).status_code == 200
        made = await api.post("/v1/keys", json={"name": "billing", "scopes": ["read"]})
        await api.post(f"/v1/keys/{made.json()['id']}/revoke")
    assert [one["event"] for one in logs] == [
        *("number_set", "halt_set", "halt_set", "number_moved", "number_moved"),
        *("key_made", "key_revoked"),
    ]
    assert {one["actor"] for one in logs} == {"key:admin"}
    assert [one.get("rate") for one in logs][:1] == [7]
    assert [one.get("halted") for one in logs][1:3] == [True, False]
    assert [one.get("state") for one in logs][3:5] == ["paused", "active"]
    assert made.json()["key"] not in str(logs)


async def test_a_database_that_is_away_is_503(cut_off_api: Api):
    answer = await cut_off_api.get("/v1/campaigns")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["detail"] == "the database does not answer"
