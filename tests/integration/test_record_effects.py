"""What a code does beside its message: pauses and opt-outs, in the transaction of its result."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from planting import (
    NUMBER,
    campaign_state,
    check_counters,
    claim_all,
    events,
    one_row,
    plant_campaign,
    plant_messages,
    plant_number,
    run,
    statuses,
)
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from waiting import until

from services.sender.pipeline.claim import ClaimedMessage
from services.sender.pipeline.outcome import Failed, Outcome, Retry, Throttled
from services.sender.pipeline.record import Result, record
from shared.db.campaigns import keep_running, pause_campaigns
from shared.db.effects import Met, apply_effects
from shared.domain.campaigns import PauseReason
from shared.whatsapp.errors import ERRORS, rule_for_webhook


def met(code: int) -> Throttled:
    return Throttled("meta", code, ERRORS[code].effect, pause=ERRORS[code].pause)


async def tell(engine: AsyncEngine, campaign: int, outcome: Outcome, count: int = 1) -> list[int]:
    """Claimed messages of this campaign that all meet the outcome."""
    ids = await plant_messages(engine, campaign, count, status="claimed")
    async with engine.begin() as connection:
        await record(connection, results(campaign, ids, outcome))
    return ids


def results(campaign: int, ids: list[int], outcome: Outcome) -> list[Result]:
    return [Result(ClaimedMessage(one, campaign, 1, 0, "1", {}, 0.0), outcome) for one in ids]


async def number_state(
    engine: AsyncEngine, phone_number_id: str = NUMBER
) -> tuple[str, str | None, datetime | None]:
    statement = text("""
        SELECT state, paused_reason, paused_until FROM numbers WHERE phone_number_id = :number
    """)
    async with engine.connect() as connection:
        return tuple((await connection.execute(statement, {"number": phone_number_id})).one())


async def opted_out(engine: AsyncEngine) -> list[str]:
    async with engine.connect() as connection:
        found = await connection.scalars(text("SELECT person FROM opt_outs ORDER BY 1"))
        return list(found)


async def states(engine: AsyncEngine, *campaigns: int) -> list[tuple[str, str | None]]:
    return [await campaign_state(engine, campaign) for campaign in campaigns]


PAUSED_BY_TOKEN = ("paused", "token")
PAUSED_BY_ACCOUNT = ("paused", "account")
RUNNING = ("running", None)


async def test_a_dead_token_pauses_its_campaigns_on_every_number(engine: AsyncEngine) -> None:
    await plant_number(engine, "1", token_name="A")
    await plant_number(engine, "2", token_name="A")
    await plant_number(engine, "3", token_name="B")
    await plant_number(engine, "4")
    one, two, other, unnamed = [
        await plant_campaign(engine, phone_number_id=number) for number in "1234"
    ]

    await tell(engine, one, met(190))

    assert await states(engine, one, two, other, unnamed) == [
        PAUSED_BY_TOKEN,
        PAUSED_BY_TOKEN,
        RUNNING,
        RUNNING,
    ]
    assert await events(engine, two) == [("paused", "sender")]


async def test_the_token_without_a_name_is_one_token(engine: AsyncEngine) -> None:
    await plant_number(engine, "1")
    await plant_number(engine, "2")
    await plant_number(engine, "3", token_name="A")
    one, two, named = [await plant_campaign(engine, phone_number_id=number) for number in "123"]

    await tell(engine, one, met(190))

    assert await states(engine, one, two, named) == [PAUSED_BY_TOKEN, PAUSED_BY_TOKEN, RUNNING]


async def test_a_restricted_account_pauses_the_campaigns_of_its_numbers(
    engine: AsyncEngine,
) -> None:
    await plant_number(engine, "1", waba_id="x")
    await plant_number(engine, "2", waba_id="x")
    await plant_number(engine, "3", waba_id="y")
    one, two, other = [await plant_campaign(engine, phone_number_id=number) for number in "123"]

    await tell(engine, one, met(368))

    assert await states(engine, one, two, other) == [PAUSED_BY_ACCOUNT, PAUSED_BY_ACCOUNT, RUNNING]


async def test_a_missing_template_pauses_its_campaign_alone(engine: AsyncEngine) -> None:
    campaign, other = await plant_campaign(engine), await plant_campaign(engine)

    await tell(engine, campaign, met(132001))

    assert await states(engine, campaign, other) == [("paused", "template"), RUNNING]
    row = await one_row(engine, campaign)
    assert (row.status, row.attempt, row.spent, row.error_code) == ("pending", 2, 0, 132001)
    assert (await claim_all(engine, campaign)).messages == []
    await check_counters(engine, campaign)


async def test_many_messages_with_one_code_pause_once(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)

    await tell(engine, campaign, met(132001), 20)
    await tell(engine, campaign, met(132001))

    assert await events(engine, campaign) == [("paused", "sender")]


@pytest.mark.parametrize("state", ["cancelled", "completed", "paused"])
async def test_only_a_running_campaign_is_paused(engine: AsyncEngine, state: str) -> None:
    reason = "operator" if state == "paused" else None
    campaign = await plant_campaign(engine, state=state, pause_reason=reason)
    ids = await plant_messages(engine, campaign, status="claimed")
    final = Failed(132001, "meta", effect=ERRORS[132001].effect)
    async with engine.begin() as connection:
        await record(connection, results(campaign, ids, final))

    assert await campaign_state(engine, campaign) == (state, reason)


async def test_a_spam_limit_pauses_the_number_until_later(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    start = datetime.now(UTC)

    await tell(engine, campaign, met(131048))

    state, reason, end = await number_state(engine)
    assert (state, reason) == ("paused", "meta:131048")
    assert end is not None
    assert abs(end - start - timedelta(hours=4)) < timedelta(minutes=2)
    assert await campaign_state(engine, campaign) == RUNNING
    assert (await claim_all(engine, campaign)).messages == []


@pytest.mark.parametrize(
    ("code", "paused"),
    [(131048, "1"), (80007, "13"), (4, "12"), (613, "1"), (131057, "1"), (33, "1")],
)
async def test_a_call_limit_pauses_every_number_it_is_of(
    engine: AsyncEngine, code: int, paused: str
) -> None:
    await plant_number(engine, "1", waba_id="x", token_name="A")
    await plant_number(engine, "2", waba_id="y", token_name="A")
    await plant_number(engine, "3", waba_id="x", token_name="B")
    await plant_number(engine, "4", waba_id="z")
    campaign = await plant_campaign(engine, phone_number_id="1")

    await tell(engine, campaign, met(code))

    found = {number: await number_state(engine, number) for number in "1234"}
    assert {number for number, (state, *_) in found.items() if state == "paused"} == {*paused}
    for number in paused:
        assert found[number][1] == f"meta:{code}"
        assert (found[number][2] is None) == (ERRORS[code].pause is None)


async def test_a_portfolio_under_review_pauses_all_its_campaigns(engine: AsyncEngine) -> None:
    await plant_number(engine, "1", waba_id="x", portfolio_id="p")
    await plant_number(engine, "2", waba_id="y", portfolio_id="p")
    await plant_number(engine, "3", waba_id="x")
    await plant_number(engine, "4", waba_id="z", portfolio_id="q")
    await plant_number(engine, "5", waba_id="z")
    found = [await plant_campaign(engine, phone_number_id=number) for number in "12345"]
    rule = rule_for_webhook(135000)
    async with engine.begin() as connection:
        one = Met(135000, rule.effect, rule.pause, found[0], 0)
        await apply_effects(connection, [one], "webhook")

    assert await states(engine, *found) == [*[PAUSED_BY_ACCOUNT] * 3, RUNNING, RUNNING]


async def test_a_number_that_is_not_registered_pauses_without_an_end(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)

    await tell(engine, campaign, met(133010))

    assert await number_state(engine) == ("paused", "meta:133010", None)


async def test_a_pause_without_an_end_is_not_given_one(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    await run(engine, "UPDATE numbers SET state = 'paused', paused_reason = 'operator'")

    await tell(engine, campaign, met(131048))

    assert await number_state(engine) == ("paused", "operator", None)


@pytest.mark.parametrize("outcome", [met(130429), Failed(131026, "meta"), Retry(131000, "meta")])
async def test_other_codes_pause_nothing(engine: AsyncEngine, outcome: Outcome) -> None:
    campaign = await plant_campaign(engine)

    await tell(engine, campaign, outcome)

    assert await campaign_state(engine, campaign) == RUNNING
    assert (await number_state(engine))[0] == "active"
    assert await opted_out(engine) == []


async def test_every_person_who_stopped_us_is_opted_out(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    stopped = Failed(131050, "meta", effect=ERRORS[131050].effect)

    ids = await tell(engine, campaign, stopped, 3)
    await tell(engine, campaign, Failed(131026, "meta"))

    assert await opted_out(engine) == sorted(f"p{one}" for one in ids)
    assert await statuses(engine, campaign) == {"failed": 4}


async def test_the_pause_is_undone_with_its_transaction(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    ids = await plant_messages(engine, campaign, status="claimed")
    async with engine.connect() as connection:
        await record(connection, results(campaign, ids, met(132001)))
        await connection.rollback()

    assert await campaign_state(engine, campaign) == RUNNING
    assert await statuses(engine, campaign) == {"claimed": 1}


async def waits_for_a_lock(connection: AsyncConnection) -> bool:
    statement = text("""
        SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted
            AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database()))
    """)
    return bool(await connection.scalar(statement))


async def test_two_that_requeue_into_a_completed_campaign_do_not_deadlock(
    engine: AsyncEngine,
) -> None:
    campaign = await plant_campaign(engine, state="completed")
    ids = await plant_messages(engine, campaign, 2, status="unknown")
    retry = Retry(131000, "meta")
    async with engine.connect() as first, engine.connect() as second, engine.connect() as watcher:
        await record(first, results(campaign, ids[:1], retry))
        other = asyncio.create_task(record(second, results(campaign, ids[1:], retry)))
        await until(lambda: waits_for_a_lock(watcher), 20, is_right=bool)
        await first.commit()
        assert await asyncio.wait_for(other, 20) == 1
        await second.commit()

    assert await statuses(engine, campaign) == {"pending": 2}
    assert await events(engine, campaign) == [("reopened", "sender")]


async def test_two_that_requeue_at_the_very_same_time(engine: AsyncEngine) -> None:
    """Both hold the shared lock before either reopens the campaign."""
    campaign = await plant_campaign(engine, state="completed")
    ids = await plant_messages(engine, campaign, 12, status="unknown")

    async def requeue(one: int) -> int:
        async with engine.begin() as connection:
            return await record(connection, results(campaign, [one], Retry(131000, "meta")))

    found = await asyncio.wait_for(asyncio.gather(*map(requeue, ids[:8])), 60)

    assert found == [1] * 8


async def test_a_pause_does_not_wait_for_those_that_requeue(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    async with engine.begin() as requeuing, engine.begin() as pausing:
        await keep_running(requeuing, [campaign], "test")
        paused = pause_campaigns(pausing, [campaign], PauseReason.OPERATOR, "test")
        assert await asyncio.wait_for(paused, 5) == [campaign]


async def test_a_limit_per_person_is_tried_twice_in_all(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    (message,) = await plant_messages(engine, campaign, status="claimed")
    limited = Retry(131049, "meta", ERRORS[131049].later, tries=ERRORS[131049].tries)
    before = datetime.now(UTC)

    async def meet(attempt: int, spent: int) -> None:
        claimed = ClaimedMessage(message, campaign, attempt, spent, "1", {}, 0.0)
        async with engine.begin() as connection:
            assert await record(connection, [Result(claimed, limited)]) == 1

    await meet(1, 0)
    row = await one_row(engine, campaign)
    assert (row.status, row.attempt) == ("pending", 2)
    assert row.due_at is not None
    assert timedelta(hours=24) <= row.due_at - before < timedelta(hours=27)

    again = "UPDATE messages SET status = 'claimed', due_at = NULL, claimed_at = now()"
    await run(engine, f"{again} WHERE id = :id", id=message)
    await run(engine, "UPDATE counter_deltas SET status = 'claimed' WHERE status = 'pending'")
    await meet(2, 1)

    row = await one_row(engine, campaign)
    assert (row.status, row.attempt, row.spent, row.error_code) == ("failed", 2, 2, 131049)
