"""The sender's REST API on loopback, over the test's database, without worker and loops.

A plugin: a test module names it in `pytest_plugins` and asks for `api`.
"""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from sender_api import ADMIN_KEY, SETTINGS, Api
from serving_api import serving
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.api.keys import ensure_admin_key
from services.sender.runtime import Runtime
from shared.db.engine import create_engine


@pytest.fixture(scope="session")
async def _serving(_engine: AsyncEngine, _redis: Redis) -> AsyncGenerator[str]:
    """One server for all tests: it keeps nothing between them."""
    async with serving(Runtime(SETTINGS, _engine, _redis)) as url:
        yield url


@pytest.fixture
async def cut_off_api(redis: Redis, tmp_path: Path) -> AsyncGenerator[Api]:
    """A client of an API whose database is away."""
    engine = create_engine(f"postgresql://postgres@/postgres?host={tmp_path}&port=5432")
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    async with (
        serving(Runtime(SETTINGS, engine, redis)) as url,
        Api(base_url=url, headers=headers, timeout=30) as client,
    ):
        yield client
    await engine.dispose()


@pytest.fixture
async def staging_api(engine: AsyncEngine, redis: Redis) -> AsyncGenerator[Api]:
    """A client of an API whose installation may send to Germans and one other number only."""
    await ensure_admin_key(engine, SETTINGS)
    settings = SETTINGS.model_copy(update={"allowed_recipients": ("49", "12025550101")})
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    async with (
        serving(Runtime(settings, engine, redis)) as url,
        Api(base_url=url, headers=headers, timeout=30) as client,
    ):
        yield client


@pytest.fixture
async def narrow_api(database_url: str, redis: Redis) -> AsyncGenerator[Api]:
    """A client of an API that has one connection to the test's database."""
    engine = create_engine(database_url, pool_size=1)
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    async with (
        serving(Runtime(SETTINGS, engine, redis)) as url,
        Api(base_url=url, headers=headers, timeout=30) as client,
    ):
        yield client
    await engine.dispose()


@pytest.fixture
async def api(_serving: str, engine: AsyncEngine, redis: Redis) -> AsyncGenerator[Api]:
    """A client of the API with the admin key, over the emptied database and Valkey."""
    assert redis
    await ensure_admin_key(engine, SETTINGS)
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    async with Api(base_url=_serving, headers=headers, timeout=30) as client:
        yield client
        await client.post("/v1/unhalt", headers=headers)  # no other test may find it halted
