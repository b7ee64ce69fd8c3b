"""Claims against real Postgres: who gets which rows, and what stops a claim."""

import asyncio

import pytest
from planting import (
    NUMBER,
    change_campaign,
    check_counters,
    claim_all,
    plant_campaign,
    plant_messages,
    plant_number,
    plant_opt_out,
    rows,
    run,
    statuses,
)
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.pipeline.claim import Share, claim
from services.sender.pipeline.watermarks import BEGINNING


async def test_rows_come_in_due_order_and_are_claimed(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    late = await plant_messages(engine, campaign, 3, due_in=-10)
    early = await plant_messages(engine, campaign, 3, due_in=-20, parameters={"name": "Ana"})

    found = await claim_all(engine, campaign)

    assert [message.id for message in found.messages] == early + late
    assert found.taken == {campaign: 6}
    first = found.messages[0]
    assert (first.campaign_id, first.attempt, first.spent) == (campaign, 1, 0)
    assert (first.phone, first.parameters) == (str(12025000000 + first.id), {"name": "Ana"})
    for row in await rows(engine, campaign):
        assert (row.status, row.due_at, row.attempt, row.spent) == ("claimed", None, 1, 0)
        assert row.claimed_at is not None
    await check_counters(engine, campaign)


async def test_what_a_claim_says_holds_no_personal_data(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, parameters={"name": "Ana"})

    (message,) = (await claim_all(engine, campaign)).messages

    assert message.phone not in repr(message)
    assert "Ana" not in repr(message)


async def test_what_is_not_due_stays(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 3, due_in=3600)

    found = await claim_all(engine, campaign)

    assert (found.messages, found.taken, found.last_due) == ([], {}, {})
    assert await statuses(engine, campaign) == {"pending": 3}


async def test_a_claim_takes_no_more_than_asked_and_the_earliest(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    ids = await plant_messages(engine, campaign, 10)

    found = await claim_all(engine, campaign, most=4)

    assert [message.id for message in found.messages] == ids[:4]
    assert await statuses(engine, campaign) == {"claimed": 4, "pending": 6}


async def test_the_watermark_is_inclusive(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    ids = await plant_messages(engine, campaign, 4)
    second = (await rows(engine, campaign))[1].due_at
    assert second is not None

    found = await claim_all(engine, campaign, watermark=second)

    assert [message.id for message in found.messages] == ids[1:]


async def test_the_next_watermark_is_the_last_due_time(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 4)
    due = [row.due_at for row in await rows(engine, campaign)]

    found = await claim_all(engine, campaign, most=3)

    assert found.last_due == {campaign: due[2]}


async def test_several_campaigns_in_one_statement(engine: AsyncEngine) -> None:
    first, second = await plant_campaign(engine), await plant_campaign(engine)
    ids = {one: await plant_messages(engine, one, 5) for one in (first, second)}
    dues = {one: [row.due_at for row in await rows(engine, one)] for one in (first, second)}
    watermark = dues[second][2]
    assert watermark is not None

    found = await claim(engine, [Share(first, 2, BEGINNING), Share(second, 10, watermark)], None)

    assert {message.id for message in found.messages} == {*ids[first][:2], *ids[second][2:]}
    assert found.taken == {first: 2, second: 3}
    assert found.last_due == {first: dues[first][1], second: dues[second][4]}
    await check_counters(engine, first, second)


async def test_two_at_once_are_disjoint_and_complete(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    ids = await plant_messages(engine, campaign, 200)

    claims = await asyncio.gather(*(claim_all(engine, campaign, most=30) for _ in range(8)))

    got = [message.id for found in claims for message in found.messages]
    assert len(got) == len(set(got))
    assert all(len(found.messages) <= 30 for found in claims)
    rest = await claim_all(engine, campaign)
    assert sorted(got + [message.id for message in rest.messages]) == ids
    await check_counters(engine, campaign)


async def test_rows_that_another_claim_holds_are_passed_over(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    ids = await plant_messages(engine, campaign, 6)
    async with engine.begin() as other:
        held = text("SELECT id FROM messages WHERE id = ANY(:ids) FOR UPDATE")
        await other.execute(held, {"ids": ids[:3]})

        found = await asyncio.wait_for(claim_all(engine, campaign, most=2), 20)

        assert [message.id for message in found.messages] == ids[3:5]


STOPS = {
    "paused": "UPDATE campaigns SET state = 'paused', pause_reason = 'operator'",
    "draft": "UPDATE campaigns SET state = 'draft'",
    "scheduled": "UPDATE campaigns SET state = 'scheduled'",
    "cancelled": "UPDATE campaigns SET state = 'cancelled'",
    "completed": "UPDATE campaigns SET state = 'completed'",
    "number paused": "UPDATE numbers SET state = 'paused'",
    "number paused with an end": """
        UPDATE numbers SET state = 'paused', paused_until = now() + interval '1 hour'
    """,
    "halted": "UPDATE installation SET halted = true",
}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS.keys())
async def test_nothing_comes_after_a_stop_has_committed(engine: AsyncEngine, stop: str) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 3)
    await run(engine, stop)
    try:
        found = await claim_all(engine, campaign)
    finally:
        await run(engine, "UPDATE installation SET halted = false")

    assert (found.messages, found.taken) == ([], {})
    assert await statuses(engine, campaign) == {"pending": 3}


async def test_a_pause_whose_end_has_passed_stops_nothing(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 3)
    await run(
        engine,
        "UPDATE numbers SET state = 'paused', paused_until = now() - interval '1 millisecond'",
    )

    assert len((await claim_all(engine, campaign)).messages) == 3


async def test_one_stopped_campaign_does_not_stop_the_other(engine: AsyncEngine) -> None:
    stopped, running = await plant_campaign(engine), await plant_campaign(engine)
    for campaign in (stopped, running):
        await plant_messages(engine, campaign, 2)
    await change_campaign(engine, stopped, state="paused", pause_reason="operator")

    found = await claim(engine, [Share(stopped, 5, BEGINNING), Share(running, 5, BEGINNING)], None)

    assert found.taken == {running: 2}


async def test_who_opted_out_is_skipped_and_not_returned(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    ids = await plant_messages(engine, campaign, 3)
    await plant_opt_out(engine, ids[1])

    found = await claim_all(engine, campaign)

    assert [message.id for message in found.messages] == [ids[0], ids[2]]
    assert found.taken == {campaign: 3}
    skipped = (await rows(engine, campaign))[1]
    assert (skipped.status, skipped.reason, skipped.due_at) == ("skipped", "opted_out", None)
    assert skipped.claimed_at is None
    await check_counters(engine, campaign)


async def test_a_skipped_last_row_still_moves_the_watermark(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    ids = await plant_messages(engine, campaign, 2)
    await plant_opt_out(engine, ids[1])
    last = (await rows(engine, campaign))[1].due_at

    assert (await claim_all(engine, campaign)).last_due == {campaign: last}


async def test_a_retried_row_keeps_its_numbers_and_code(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, attempt=4, spent=2, error_code=131000)

    (message,) = (await claim_all(engine, campaign)).messages

    assert (message.attempt, message.spent) == (4, 2)
    await check_counters(engine, campaign)


async def test_a_claim_is_given_up_after_its_statement_timeout(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign)
    async with engine.connect() as connection:
        usual = await connection.scalar(text("SHOW statement_timeout"))
    async with engine.begin() as other:
        await other.execute(text("LOCK TABLE messages IN ACCESS EXCLUSIVE MODE"))

        with pytest.raises(Exception, match="statement timeout"):
            await asyncio.wait_for(claim_all(engine, campaign), 20)

    async with engine.connect() as connection:
        assert await connection.scalar(text("SHOW statement_timeout")) == usual


async def test_a_paused_number_leaves_other_numbers_alone(engine: AsyncEngine) -> None:
    other_number = await plant_number(engine, "100000000000002")
    paused, running = (
        await plant_campaign(engine),
        await plant_campaign(engine, phone_number_id=other_number),
    )
    for campaign in (paused, running):
        await plant_messages(engine, campaign, 1)
    await plant_number(
        engine, NUMBER, state="paused", paused_until=text("now() + interval '1 hour'")
    )

    found = await claim(engine, [Share(paused, 5, BEGINNING), Share(running, 5, BEGINNING)], None)

    assert found.taken == {running: 1}
