"""A claim's cost while its table fills with finished rows and some other transaction stays open."""

from typing import Any

from planting import plant_campaign, plant_messages
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.sender.pipeline.claim import _CLAIM, Share, claim
from services.sender.pipeline.outcome import Accepted
from services.sender.pipeline.record import Result, record
from services.sender.pipeline.watermarks import BEGINNING

ROWS, DONE, BLOCK = 12_000, 10_000, 250


async def test_a_claim_stays_flat_under_a_held_snapshot(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, ROWS)
    async with engine.connect() as report:
        await report.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        await report.execute(text("SELECT count(*) FROM messages"))
        first = await buffers(engine, Share(campaign, 10, BEGINNING))

        watermark = await send_away(engine, campaign)

        late = await buffers(engine, Share(campaign, 10, watermark.watermark))
        naive = await buffers(engine, Share(campaign, 10, BEGINNING))

    assert late < 2 * first
    # Else the held snapshot held nothing, and the comparison above says nothing.
    assert naive > 5 * first


async def send_away(engine: AsyncEngine, campaign: int) -> Share:
    """Claim and record block after block; returns where the next claim would start."""
    share = Share(campaign, BLOCK, BEGINNING)
    for _ in range(DONE // BLOCK):
        found = await claim(engine, [share], None)
        assert found.taken == {campaign: BLOCK}
        results = [Result(message, Accepted(f"w{message.id}")) for message in found.messages]
        async with engine.begin() as connection:
            assert await record(connection, results) == BLOCK
        share = Share(campaign, BLOCK, found.last_due[campaign])
    return share


async def buffers(engine: AsyncEngine, share: Share) -> int:
    """Pages that the claim touches to find its rows; it is rolled back."""
    async with engine.connect() as connection:
        plan = await explain(connection, share)
        await connection.rollback()
    (found,) = [node for node in nodes(plan["Plan"]) if node["Node Type"] == "LockRows"]
    assert found["Actual Rows"] == share.most
    return int(found["Shared Hit Blocks"] + found["Shared Read Blocks"])


async def explain(connection: AsyncConnection, share: Share) -> dict[str, Any]:
    statement = text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {_CLAIM.text}")
    values = {
        "campaigns": [share.campaign_id],
        "counts": [share.most],
        "watermarks": [share.watermark],
        "allowed": None,
    }
    plan: list[dict[str, Any]] = (await connection.execute(statement, values)).scalar_one()
    return plan[0]


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for part in plan.get("Plans", []) for node in nodes(part))]
