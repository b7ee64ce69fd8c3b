"""What a page of a long campaign costs: the same at its start, in its depth and behind its end."""

from typing import Any

from planting import plant_campaign, plant_messages, run
from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.audience.exports import _NEXT, PAGE
from services.sender.audience.listing import _ALL, _WITH_CODE
from services.sender.campaigns.requeue import _ANY_CODE, _WITH_CODES

MANY, OTHERS = 100_000, 30_000
LIST = {"scan": 100, "limit": 100, "status": None}
FAILED: dict[str, Any] = {"status": "failed", "error_code": 131026}
STEP = {"scan": 500, "most": 100, "status": "unknown", "settled": True}
PAGES: list[tuple[TextClause, dict[str, Any]]] = [
    (_NEXT, {"most": PAGE}),
    (_ALL, LIST),
    (_WITH_CODE, {**LIST, "error_code": FAILED["error_code"]}),
    (_ANY_CODE, STEP),
    (_WITH_CODES, {**STEP, "codes": [FAILED["error_code"]]}),
]


async def test_a_page_costs_the_same_wherever_it_is(engine: AsyncEngine) -> None:
    campaign, newer = await plant_campaign(engine), await plant_campaign(engine)
    ids = await plant_messages(engine, campaign, MANY, **FAILED)
    await plant_messages(engine, newer, OTHERS, **FAILED)
    await run(engine, "ANALYZE messages, recipients")

    for statement, values in PAGES:
        start, deep, last, behind = [
            await buffers(engine, statement, campaign=campaign, after=after, **values)
            for after in (0, ids[MANY // 2], ids[-2], ids[-1])
        ]
        assert deep < 1.5 * start
        assert max(last, behind) < 50


async def buffers(engine: AsyncEngine, statement: TextClause, **values: Any) -> int:
    """Pages that a statement touches."""
    asked = text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.text}")
    async with engine.connect() as connection:
        plan = (await connection.execute(asked, values)).scalar_one()[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
