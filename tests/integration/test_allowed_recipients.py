"""Where only some may be sent to, nobody else gets anything, and everybody can read why."""

from collections import Counter
from typing import Any

import httpx
import pytest
from pipeline import Meta, accept, become, refuse, sending
from planting import (
    campaign_state,
    check_counters,
    claim_all,
    events,
    plant_campaign,
    plant_messages,
    plant_opt_out,
    rows,
    run,
)
from redis.asyncio import Redis
from sender_api import Api
from sender_api import rows as look_up
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.campaigns.left_out import left_out
from services.sender.orchestration.completer import complete
from services.sender.pipeline.desk import Bounds
from shared.domain.phones import prefixes

pytest_plugins = ["sender_server"]

ALLOWED = prefixes("+44 7400 123456, +49")
PHONES = ("447400123456", "4915112000001", "447400123457", "12025550123", "14474001234")
THROTTLED = 130429


async def plant_people(engine: AsyncEngine, campaign: int, *phones: str) -> list[int]:
    """One message for each phone."""
    ids = await plant_messages(engine, campaign, len(phones))
    for message, phone in zip(ids, phones, strict=True):
        await run(
            engine, "UPDATE recipients SET phone = :phone WHERE id = :id", phone=phone, id=message
        )
    return ids


async def test_everyone_else_is_skipped_with_the_reason(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    ids = await plant_people(engine, campaign, *PHONES)

    found = await claim_all(engine, campaign, allowed=ALLOWED)

    assert [message.id for message in found.messages] == ids[:2]
    assert found.taken == {campaign: len(PHONES)}
    for row in (await rows(engine, campaign))[2:]:
        assert (row.status, row.reason) == ("skipped", "not_allowed")
        assert (row.due_at, row.claimed_at) == (None, None)
    await check_counters(engine, campaign)


async def test_a_whole_number_allows_no_longer_one_that_begins_with_it(engine: AsyncEngine) -> None:
    """In Germany, among others, both may be somebody's."""
    campaign = await plant_campaign(engine)
    ids = await plant_people(engine, campaign, "491711234567", "4917112345678")

    allowed = prefixes("+49 171 1234567")
    found = await claim_all(engine, campaign, allowed=allowed)

    assert [message.id for message in found.messages] == ids[:1]
    async with engine.connect() as connection:
        assert (await left_out(connection, campaign, 2, allowed)).not_allowed == 1


@pytest.mark.parametrize(("allowed", "claimed"), [(ALLOWED, 0), ((), 0), (None, 1)])
async def test_who_has_no_phone_is_not_among_the_allowed(
    engine: AsyncEngine, allowed: tuple[str, ...] | None, claimed: int
) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign)
    await run(engine, "UPDATE recipients SET phone = NULL, user_id = 'US.1349'")

    found = await claim_all(engine, campaign, allowed=allowed)

    assert len(found.messages) == claimed


async def test_who_is_allowed_and_opted_out_is_skipped_as_such(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    allowed, other = await plant_people(engine, campaign, PHONES[0], PHONES[3])
    await plant_opt_out(engine, allowed)
    await plant_opt_out(engine, other)

    assert (await claim_all(engine, campaign, allowed=ALLOWED)).messages == []

    assert {row.reason for row in await rows(engine, campaign)} == {"opted_out"}


async def test_no_attempt_of_theirs_leaves_and_the_campaign_ends(
    engine: AsyncEngine, redis: Redis
) -> None:
    """Not at first, not after a throttled attempt, not of a row that has come back."""
    campaign = await plant_campaign(engine)
    ids = await plant_people(engine, campaign, *PHONES, *(f"3361200000{n}" for n in range(10)))
    await run(engine, "UPDATE messages SET attempt = 3, spent = 2 WHERE id = :id", id=ids[3])
    refused: Counter[str] = Counter()

    def once_throttled(body: dict[str, Any]) -> httpx.Response:
        refused[body["to"]] += 1
        return refuse(THROTTLED) if refused[body["to"]] == 1 else accept(body)

    meta = Meta(once_throttled)
    async with sending(engine, redis, meta, bounds=Bounds(90, ALLOWED)):
        await become(engine, campaign, accepted=2, skipped=13)

    assert meta.times_sent == {f"+{PHONES[0]}": 2, f"+{PHONES[1]}": 2}
    assert await complete(engine) == 1
    assert await campaign_state(engine, campaign) == ("completed", None)
    assert await events(engine, campaign) == [("completed", "completer")]
    await check_counters(engine, campaign)


async def test_a_list_of_recipients_says_why(engine: AsyncEngine, api: Api) -> None:
    path = await api.started("phone,name\n+12025550123,Ana\n+447400123456,Ada\n")
    ((campaign,),) = await look_up(engine, "SELECT id FROM campaigns")
    assert isinstance(campaign, int)
    await claim_all(engine, campaign, allowed=ALLOWED)

    (skipped,) = (await api.get(f"{path}/recipients?status=skipped")).json()["data"]

    assert (skipped["phone"], skipped["reason"]) == ("12025550123", "not_allowed")
    assert (await api.get(path)).json()["counts"]["skipped"] == 1
