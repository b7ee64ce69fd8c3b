"""The pool's prepared statements: kept where a session is ours, never taken for another's."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from pooling import pooling
from sqlalchemy import text

from shared.db.engine import create_engine

ROOT = Path(__file__).parents[2]
PREPARED = text("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%of the test%'")
OURS = text("SELECT 1 /* of the test */")
# A process that asks for the same word again and again, and prints what else it was answered.
ASKS = """
import asyncio, sys
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from shared.db.engine import create_engine
from shared.telemetry.logs import configure

async def ask(engine, word, strange):
    for _ in range(100):
        try:
            async with engine.begin() as connection:
                row = await connection.execute(text(f"SELECT '{word}' || :rest"), {"rest": ""})
                strange += {row.scalar()} - {word}
        except DBAPIError:
            pass  # refused: nothing was run

async def main(url, word):
    engine, strange = create_engine(url, pool_size=3), []
    await asyncio.gather(*(ask(engine, word, strange) for _ in range(3)))
    await engine.dispose()
    print("strange:", strange)

configure("json")
asyncio.run(main(*sys.argv[1:]))
"""


async def told(url: str, word: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ASKS, url, word),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=PIPE,
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    return out.decode().splitlines()[-1]


@pytest.mark.parametrize(("pgbouncer", "kept"), [(False, 1), (True, 0)])
async def test_statements_are_kept_where_no_pooler_stands(
    pgbouncer: bool,  # noqa: FBT001 -- a case
    kept: int,
    database_url: str,
) -> None:
    engine = create_engine(database_url, pool_size=1, pgbouncer=pgbouncer)
    for _ in range(2):
        async with engine.connect() as connection:
            await connection.execute(OURS)
            found = (await connection.execute(PREPARED)).scalar_one()
    await engine.dispose()
    # The question itself is one of those it asks for.
    assert found == 2 * kept


async def test_cd_01_through_a_pooler_no_process_runs_the_statement_of_another(
    database_url: str,
) -> None:
    with pooling(database_url, ignores=True) as pooler:
        answers = await asyncio.gather(told(pooler.url, "pause"), told(pooler.url, "cancel"))
        assert pooler.refused
    assert answers == ["strange: []"] * 2
