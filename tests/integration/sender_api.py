"""A client of the sender's REST API, with the steps that most tests begin with."""

from collections.abc import AsyncIterator

import httpx
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.api.keys import Scope, digest_of
from services.sender.settings import SenderSettings

ADMIN_KEY = "an-admin-key-of-the-tests"
NUMBER = "100000000000001"
TEMPLATE = {
    "name": "order_ok",
    "language": "en",
    "components": [{"type": "body", "parameters": [{"type": "text", "text": "{{name}}"}]}],
}
SETTINGS = SenderSettings.model_validate(
    {
        "DATABASE_URL": "postgresql://unused",
        "REDIS_URL": "redis://unused",
        "access_token": "TEST-TOKEN-01",
        "admin_key": ADMIN_KEY,
    }
)


class Api(httpx.AsyncClient):
    """A client with the admin key, and the steps that most tests begin with."""

    async def register(self, number: str = NUMBER, **changes: object) -> httpx.Response:
        body = {"waba_id": "200000000000001", **changes}
        return await self.put(f"/v1/phone-numbers/{number}", json=body)

    async def draft(self, **changes: object) -> str:
        """A campaign's path."""
        await self.register()
        answer = await self.post("/v1/campaigns", json=campaign(**changes))
        assert answer.status_code == 201, answer.text
        return f"/v1/campaigns/{answer.json()['id']}"

    async def upload(
        self, path: str, csv: str | bytes | AsyncIterator[bytes], **headers: str
    ) -> httpx.Response:
        headers = {"content-type": "text/csv", **headers}
        return await self.post(f"{path}/recipients", content=csv, headers=headers)

    async def started(self, csv: str = "phone,name\n+12025550123,Ana\n", **changes: object) -> str:
        path = await self.draft(**changes)
        assert (await self.upload(path, csv)).status_code == 201
        assert (await self.post(f"{path}/start")).status_code == 200
        return path


def campaign(**changes: object) -> dict[str, object]:
    return {"name": "c", "phone_number_id": NUMBER, "template": TEMPLATE, **changes}


def people(count: int, start: int = 0) -> str:
    """A CSV file of so many recipients."""
    numbers = range(start, start + count)
    return "phone,name\n" + "".join(f"+4915112{n:06},Name {n}\n" for n in numbers)


async def add_key(engine: AsyncEngine, key: str, *scopes: Scope) -> None:
    values = {"name": key, "digest": digest_of(key), "scopes": list(scopes)}
    async with engine.begin() as connection:
        await connection.execute(
            text("INSERT INTO api_keys (name, digest, scopes) VALUES (:name, :digest, :scopes)"),
            values,
        )


async def rows(engine: AsyncEngine, statement: str) -> list[tuple[object, ...]]:
    async with engine.connect() as connection:
        return [tuple(row) for row in await connection.execute(text(statement))]
