"""What the simulator tells of its token, its account and its numbers."""

import time
from typing import Any

import pytest
from simulated import NUMBER, Simulated, simulator

from services.simulator.scenario import Account

TOKEN = "the-token-of-the-simulator"
WABA = "102290129340398"


async def ask(
    sim: Simulated, path: str, method: str = "GET", bearer: str | None = f"Bearer {TOKEN}"
) -> tuple[int, dict[str, Any]]:
    headers = {"authorization": bearer} if bearer else {}
    async with sim.http.request(method, f"/v25.0/{path}", headers=headers) as reply:
        return reply.status, dict(await reply.json())


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "1/message_templates"), ("POST", "1/media"), ("GET", "me"), ("GET", "a/b/c")],
)
async def test_what_is_not_simulated_is_an_unknown_object(method: str, path: str) -> None:
    async with simulator() as sim:
        status, body = await ask(sim, path, method)
    assert (status, body["error"]["code"]) == (400, 100)


@pytest.mark.parametrize(("bearer", "code"), [(None, 104), ("Bearer other", 190)])
@pytest.mark.parametrize("path", [NUMBER, f"{WABA}/subscribed_apps", "debug_token?input_token=x"])
async def test_the_token_is_asked_for(bearer: str | None, code: int, path: str) -> None:
    async with simulator(sim_access_token=TOKEN) as sim:
        status, body = await ask(sim, path, bearer=bearer)
        assert (status, body["error"]["code"]) == (401, code)
        assert (await ask(sim, path))[0] == 200


async def test_a_number_shows_what_is_asked_for() -> None:
    async with simulator() as sim:
        _, told = await ask(sim, f"{NUMBER}?fields=throughput,status,platform_type")
        _, usual = await ask(sim, NUMBER)
    assert told == {
        "id": NUMBER,
        "throughput": {"level": "STANDARD"},
        "status": "CONNECTED",
        "platform_type": "CLOUD_API",
    }
    assert set(usual) == {"id", "display_phone_number", "verified_name", "quality_rating"}


@pytest.mark.parametrize(("seconds", "valid"), [(None, True), (3600, True), (-3600, False)])
async def test_a_token_tells_of_its_end(seconds: float | None, valid: bool) -> None:  # noqa: FBT001 -- a case
    async with simulator() as sim:
        await sim.play(account={"token_expires_in_s": seconds})
        _, body = await ask(sim, "debug_token?input_token=x")
    told = body["data"]
    assert told["is_valid"] is valid
    assert told["scopes"] == list(Account().scopes)
    if seconds is None:
        assert told["expires_at"] == 0
    else:
        assert told["expires_at"] == pytest.approx(time.time() + seconds, abs=30)


async def test_a_revoked_token_opens_nothing() -> None:
    async with simulator() as sim:
        await sim.play(account={"token_valid": False})
        status, body = await ask(sim, "debug_token?input_token=x")
    assert (status, body["error"]["code"]) == (401, 190)


async def test_a_subscription_is_there_once_made() -> None:
    async with simulator() as sim:
        await sim.play(account={"subscribed": False})
        edge = f"{WABA}/subscribed_apps"
        assert await ask(sim, edge) == (200, {"data": []})
        assert await ask(sim, edge, "POST") == (200, {"success": True})
        _, told = await ask(sim, edge)
        _, of_another = await ask(sim, "1/subscribed_apps")
        _, token = await ask(sim, "debug_token?input_token=x")
    (app,) = told["data"]
    assert app["whatsapp_business_api_data"]["id"] == token["data"]["app_id"]
    assert of_another == {"data": []}


async def test_a_number_is_connected_once_registered() -> None:
    async with simulator() as sim:
        await sim.play(account={"registered": False})
        fields = f"{NUMBER}?fields=status,platform_type"
        _, before = await ask(sim, fields)
        assert await ask(sim, f"{NUMBER}/register", "POST") == (200, {"success": True})
        _, after = await ask(sim, fields)
    assert before == {"id": NUMBER, "status": "PENDING", "platform_type": "NOT_APPLICABLE"}
    assert after == {"id": NUMBER, "status": "CONNECTED", "platform_type": "CLOUD_API"}
