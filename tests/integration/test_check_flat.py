"""What a check costs, and what it says, when there are too many people to look at each."""

from typing import Any

import pytest
from planting import NUMBER, plant_campaign, plant_messages, run
from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.campaigns import holding
from services.sender.campaigns.left_out import _LOOK, MOST, left_out
from services.sender.campaigns.readiness import _FACTS

MANY, FEW = MOST * 5 // 4, 500


async def test_a_look_before_a_start_is_flat(engine: AsyncEngine) -> None:
    few, many = await plant_campaign(engine), await plant_campaign(engine)
    await plant_messages(engine, few, FEW)
    await plant_messages(engine, many, MANY)
    small = await buffers(engine, _FACTS, campaign=few)
    assert await buffers(engine, _FACTS, campaign=many) < 2 * small + 50


@pytest.mark.parametrize("strangers", [0, MOST])
async def test_those_who_would_be_skipped(engine: AsyncEngine, strangers: int) -> None:
    """Few opt-outs are counted, many are projected; what is small is always exact."""
    few, many = await plant_campaign(engine), await plant_campaign(engine)
    await plant_messages(engine, many, MANY)
    await plant_messages(engine, few, FEW)
    out = (
        "INSERT INTO opt_outs (person, source) SELECT person, 'test' FROM recipients"
        " WHERE id % 5 = 0"
    )
    await run(engine, out)
    others = (
        "INSERT INTO opt_outs (person, source)"
        " SELECT 'x' || n, 'test' FROM generate_series(1, :count) AS n"
    )
    await run(engine, others, count=strangers)

    async with engine.connect() as connection:
        large = await left_out(connection, many, MANY, ["9"])
        small = await left_out(connection, few, FEW, ["9"])
        allowed = await left_out(connection, many, MANY, ["1202"])

    exact = pytest.approx(MANY / 5, abs=1)
    assert large.opted_out == (pytest.approx(MANY / 5, rel=0.05) if strangers else exact)
    assert (large.not_allowed, allowed.not_allowed) == (MANY, 0)
    assert (small.opted_out, small.not_allowed) == (FEW / 5, FEW)


async def test_what_other_campaigns_have_uploaded_meanwhile_is_not_read(
    engine: AsyncEngine,
) -> None:
    """Ids of a campaign have gaps. Unvacuumed, as after an upload, the primary key looks cheap."""
    await run(engine, "ALTER TABLE messages SET (autovacuum_enabled = false)")
    campaign, other, newest = [await plant_campaign(engine) for _ in range(3)]
    await plant_messages(engine, campaign, MANY // 4)
    await plant_messages(engine, other, 60_000)
    await plant_messages(engine, campaign, MANY // 4)
    await plant_messages(engine, newest, 60_000)
    await run(engine, "ANALYZE messages, recipients")
    looks = {"all": False, "most": 100, "allowed": ["9"]}

    seen = await buffers(engine, _LOOK, campaign=campaign, **looks)
    starts = [await buffers(engine, _FACTS, campaign=one) for one in (campaign, newest)]
    shown = await buffers(engine, holding._FACTS, campaign=newest, number=NUMBER)
    await run(engine, "ALTER TABLE messages RESET (autovacuum_enabled)")

    assert seen < 1500
    assert max(*starts, shown) < 50


async def buffers(engine: AsyncEngine, statement: TextClause, **values: Any) -> int:
    """Pages that a statement touches."""
    asked = text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.text}")
    async with engine.connect() as connection:
        plan = (await connection.execute(asked, values)).scalar_one()[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
