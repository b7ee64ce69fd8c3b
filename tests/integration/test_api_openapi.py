"""The OpenAPI page tells the truth: of what is taken, answered and refused."""

from typing import Any

import pytest
from sender_api import NUMBER, Api, campaign, people
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

pytest_plugins = ["sender_server"]

Schema = dict[str, Any]
TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}


class Page:
    """What the page says, with a look at whether a value is as it says."""

    def __init__(self, told: Schema) -> None:
        self.told = told

    def operation(self, method: str, path: str) -> Schema:
        found: Schema = self.told["paths"][path][method.lower()]
        return found

    def fits(self, schema: Schema, value: object) -> bool:
        """Exactly: a key that the schema does not name fits no more than one that is missing."""
        match schema:
            case {"$ref": _}:
                return self.fits(self._named(schema), value)
            case {"anyOf": ways}:
                return any(self.fits(one, value) for one in ways)
            case {"allOf": parts}:
                return isinstance(value, dict) and self._object_fits(self._merged(parts), value)
            case {"enum": values}:
                return value in values
            case {"type": kind}:
                return isinstance(value, TYPES[kind]) and self._parts_fit(schema, value)
        raise AssertionError(schema)

    def _parts_fit(self, schema: Schema, value: object) -> bool:
        if isinstance(value, list):
            return all(self.fits(schema["items"], one) for one in value)
        return not isinstance(value, dict) or self._object_fits(schema, value)

    def _named(self, schema: Schema) -> Schema:
        found: Schema = self.told["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return found

    def _merged(self, parts: list[Schema]) -> Schema:
        """Objects that are one."""
        found = [self._named(one) for one in parts]
        return {
            "properties": {key: one for part in found for key, one in part["properties"].items()},
            "required": [key for part in found for key in part["required"]],
        }

    def _object_fits(self, schema: Schema, value: dict[str, object]) -> bool:
        if "properties" not in schema:
            rest = schema["additionalProperties"]
            return rest is True or all(self.fits(rest, one) for one in value.values())
        known = schema["properties"]
        return set(schema["required"]) <= value.keys() <= known.keys() and all(
            self.fits(known[key], one) for key, one in value.items()
        )


PROBLEM = "application/problem+json"
ONE = "/v1/campaigns/{campaign_id}"
LOOKS = ("recipients/{recipient_id}", "events", "errors", "timeline", "export")
# They need a process that sends.
LIVE = {
    ("POST", "/v1/phone-numbers/{phone_number_id}/messages"),
    ("GET", "/v1/messages/{message_id}"),
}
ENDED = """
UPDATE messages SET status = 'failed', due_at = NULL, failed_at = now(), error_code = 131026
WHERE id = (SELECT min(id) FROM messages)
"""
IN_DOUBT = """
UPDATE messages SET status = 'unknown', due_at = NULL, claimed_at = now()
WHERE id = (SELECT max(id) FROM messages)
"""
TRIED = """
INSERT INTO attempts (message_id, attempt, outcome, error_code)
SELECT min(id), 1, 'failed', 131026 FROM messages
"""
MET = """
INSERT INTO counter_deltas (campaign_id, minute, status, error_code, entered, departed)
SELECT id, now(), 'failed', 131026, 1, 0 FROM campaigns
"""


async def end_some(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        for statement in (ENDED, IN_DOUBT, TRIED, MET):
            await connection.execute(text(statement))


@pytest.fixture
async def page(api: Api) -> Page:
    return Page((await api.get("/openapi.json")).json())


class Witness:
    """Calls the API by the paths of the page, and holds each answer to what the page says."""

    def __init__(self, api: Api, page: Page) -> None:
        self.ids: dict[str, object] = {"phone_number_id": NUMBER}
        self.seen: set[tuple[str, str]] = set()
        self._api, self._page = api, page

    async def __call__(self, method: str, path: str, **request: Any) -> Any:
        answer = await self._api.request(method, path.format(**self.ids), **request)
        assert answer.is_success, answer.text
        told = self._page.operation(method, path)["responses"][str(answer.status_code)]["content"]
        (kind,) = (kind for kind in told if answer.headers["content-type"].startswith(kind))
        self.seen.add((method, path))
        if kind != "application/json":
            return answer.text
        assert self._page.fits(told[kind]["schema"], answer.json()), (path, answer.text)
        return answer.json()


async def test_every_answer_is_as_the_page_says(api: Api, engine: AsyncEngine, page: Page):
    call = Witness(api, page)
    await beside_campaigns(call)
    await to_its_start(call)
    await end_some(engine)
    await to_its_end(call)
    paths = page.told["paths"].items()
    told = {(method.upper(), path) for path, all_of in paths for method in all_of}
    assert told - call.seen == LIVE


async def beside_campaigns(call: Witness) -> None:
    number, key = "/v1/phone-numbers/{phone_number_id}", {"name": "billing", "scopes": ["read"]}
    await call("PUT", number, json={"waba_id": "200000000000001"})
    for path in ("/v1/phone-numbers", number, "/v1/halt"):
        await call("GET", path)
    for path in (f"{number}/pause", f"{number}/resume", "/v1/halt", "/v1/unhalt"):
        await call("POST", path)
    call.ids["key_id"] = (await call("POST", "/v1/keys", json=key))["id"]
    await call("POST", "/v1/keys/{key_id}/revoke")
    await call("GET", "/v1/keys")


async def to_its_start(call: Witness) -> None:
    draft = await call("POST", "/v1/campaigns", json=campaign(labels={"a": "b"}))
    call.ids["campaign_id"] = draft["id"]
    csv = {"content": people(3) + "nonsense,x\n", "headers": {"content-type": "text/csv"}}
    await call("POST", f"{ONE}/recipients", **csv)
    await call("GET", f"{ONE}/rejects")
    await call("POST", f"{ONE}/check")
    await call("PATCH", ONE, json={"weight": 3})
    await call("POST", f"{ONE}/start", json={"keep_open": True})
    for move in ("pause", "resume", "close"):
        await call("POST", f"{ONE}/{move}")


async def to_its_end(call: Witness) -> None:
    people = await call("GET", f"{ONE}/recipients")
    call.ids["recipient_id"] = people["data"][0]["id"]
    for path in ("/v1/campaigns", ONE, *(f"{ONE}/{part}" for part in LOOKS)):
        await call("GET", path)
    await call("GET", f"{ONE}/export", params={"format": "ndjson"})
    await call("POST", f"{ONE}/retry", json={"status": "failed"})
    await call("POST", f"{ONE}/settle", json={"as": "failed"})
    await call("POST", f"{ONE}/cancel")


async def test_refusals_are_problems(api: Api, page: Page):
    for methods in page.told["paths"].values():
        for operation in methods.values():
            told = operation["responses"]
            assert told.keys() >= {"401", "403", "422", "503", "default"}
            for status in (one for one in told if not one.startswith("2")):
                assert told[status]["content"].keys() == {PROBLEM}, operation["summary"]
    assert not page.told["components"]["schemas"].keys() & {"HTTPValidationError"}

    draft = await api.draft()
    refused = {
        ("POST", "/v1/campaigns"): await api.post("/v1/campaigns", json={}),
        ("GET", "/v1/campaigns"): await api.get("/v1/campaigns?limit=0"),
        ("POST", "/v1/campaigns/{campaign_id}/start"): await api.post(f"{draft}/start"),
        ("POST", "/v1/campaigns/{campaign_id}/resume"): await api.post(f"{draft}/resume"),
        ("POST", "/v1/campaigns/{campaign_id}/recipients"): await api.upload(draft, "name\nA\n"),
        ("GET", "/v1/phone-numbers/{phone_number_id}"): await api.get("/v1/phone-numbers/9"),
    }
    for (method, path), answer in refused.items():
        told = page.operation(method, path)["responses"][str(answer.status_code)]
        assert page.fits(told["content"][PROBLEM]["schema"], answer.json()), answer.text


async def test_a_client_that_sends_what_it_was_told_resets_nothing(page: Page):
    change = page.told["components"]["schemas"]["Change"]
    assert not any("default" in one for one in change["properties"].values())
    assert not change.get("required")
