"""How a worker goes on after a claim that failed."""

from collections.abc import Sequence

import pytest
from planting import NUMBER, plant_campaign, plant_messages
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.pipeline import desk as module
from services.sender.pipeline.claim import Claim, Share, claim
from services.sender.pipeline.desk import Bounds, Desk
from services.sender.pipeline.roster import read_roster
from services.sender.pipeline.watermarks import Watermarks


async def test_after_a_failed_claim_it_asks_for_one_row_where_the_roster_found_it(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 10)
    asked: list[list[int]] = []

    async def failing_once(engine: AsyncEngine, shares: Sequence[Share], allowed: None) -> Claim:
        asked.append([share.most for share in shares])
        if len(asked) == 1:
            raise OperationalError("claim", {}, Exception("canceling statement"))
        return await claim(engine, shares, allowed)

    monkeypatch.setattr(module, "claim", failing_once)
    desk = Desk(NUMBER, engine, Watermarks(), Bounds(90))
    (view,) = await read_roster(engine, {})
    desk.update(view, "token")
    with pytest.raises(DBAPIError):
        await desk.claim(5)
    assert not desk.expects_rows, "only the roster knows where to go on"

    desk.update(view, "token")
    assert len(await desk.claim(5)) == 1
    assert len(await desk.claim(5)) == 5
    assert asked == [[5], [1], [5]]
