"""After its expiry nothing of a campaign leaves, and it ends as a cancelled one does."""

from datetime import UTC, datetime, timedelta

import pytest
from planting import (
    NUMBER,
    campaign_state,
    change_campaign,
    check_counters,
    claim_all,
    one_row,
    plant_campaign,
    plant_messages,
    rows,
    run,
    statuses,
)
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.orchestration.canceller import skip_pending
from services.sender.orchestration.completer import complete
from services.sender.orchestration.reconciler import reconcile
from services.sender.pipeline.outcome import Outcome, Retry, Throttled
from services.sender.pipeline.record import Result, record
from services.sender.pipeline.roster import read_roster


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


async def expire(engine: AsyncEngine, campaign: int) -> None:
    await change_campaign(engine, campaign, expires_at=ago(0.001))


async def test_nothing_is_claimed_after_it(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine, expires_at=ago(-3600))
    other = await plant_campaign(engine)
    await plant_messages(engine, campaign, 3)
    await plant_messages(engine, other)
    assert len((await claim_all(engine, campaign, most=1)).messages) == 1
    assert [view.id for view in (await read_roster(engine, {}))[0].campaigns] == [campaign, other]

    await expire(engine, campaign)

    assert (await claim_all(engine, campaign)).messages == []
    assert [view.id for view in (await read_roster(engine, {}))[0].campaigns] == [other]
    assert len((await claim_all(engine, other)).messages) == 1


@pytest.mark.parametrize(("state", "reason"), [("running", None), ("paused", "operator")])
async def test_what_waits_is_skipped(engine: AsyncEngine, state: str, reason: str | None) -> None:
    campaign = await plant_campaign(engine, state=state, pause_reason=reason, expires_at=ago(0.001))
    await plant_messages(engine, campaign, 2)
    await plant_messages(engine, campaign, 2, due_in=3600, error_code=131000, attempt=3)

    assert [await skip_pending(engine) for _ in range(2)] == [4, 0]

    for row in await rows(engine, campaign):
        assert (row.status, row.reason, row.due_at) == ("skipped", "expired", None)
    await check_counters(engine, campaign)


async def test_cancelled_counts_more_than_expired(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine, state="cancelled", expires_at=ago(60))
    await plant_messages(engine, campaign)

    assert await skip_pending(engine) == 1
    assert (await one_row(engine, campaign)).reason == "cancelled"


@pytest.mark.parametrize("state", ["draft", "scheduled"])
async def test_what_has_not_run_may_still_get_a_later_expiry(
    engine: AsyncEngine, state: str
) -> None:
    campaign = await plant_campaign(engine, state=state, expires_at=ago(60))
    await plant_messages(engine, campaign)

    assert await skip_pending(engine) == 0


async def test_what_expires_later_is_left_alone(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine, expires_at=ago(-60))
    await plant_messages(engine, campaign)

    assert await skip_pending(engine) == 0
    assert await complete(engine) == 0


@pytest.mark.parametrize(
    ("outcome", "becomes"),
    [
        (Retry(131000, "meta"), ("failed", 131000, None)),
        (Throttled("stopped", sent_nothing=True), ("skipped", None, "expired")),
    ],
    ids=["judged", "handed back"],
)
async def test_what_was_on_the_wire_does_not_leave_again(
    engine: AsyncEngine, outcome: Outcome, becomes: tuple[str, int | None, str | None]
) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign)
    (message,) = (await claim_all(engine, campaign)).messages
    await expire(engine, campaign)

    async with engine.begin() as connection:
        await record(connection, [Result(message, outcome)])
    await skip_pending(engine)

    row = await one_row(engine, campaign)
    assert (row.status, row.error_code) == becomes[:2]
    assert becomes[2] in (None, row.reason)
    await check_counters(engine, campaign)


async def test_it_completes_though_its_audience_is_open(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine, audience="open", expires_at=ago(60))
    await plant_messages(engine, campaign, 2)
    await plant_messages(engine, campaign, status="read")
    assert await complete(engine) == 0

    assert await skip_pending(engine) == 2
    assert await complete(engine) == 1

    assert await campaign_state(engine, campaign) == ("completed", None)
    assert await statuses(engine, campaign) == {"skipped": 2, "read": 1}


@pytest.mark.parametrize("reason", ["operator", "schedule_missed"])
async def test_a_paused_campaign_ends_without_being_resumed(
    engine: AsyncEngine, reason: str
) -> None:
    paused = {"state": "paused", "pause_reason": reason}
    campaign = await plant_campaign(engine, audience="open", expires_at=ago(60), **paused)
    await plant_messages(engine, campaign)
    await plant_messages(engine, campaign, status="claimed")
    await skip_pending(engine)
    assert await complete(engine) == 0, "the reply to what is on the wire may still come"
    await run(engine, "UPDATE messages SET status = 'accepted', claimed_at = NULL")

    assert [await complete(engine) for _ in range(2)] == [1, 0]

    assert await campaign_state(engine, campaign) == ("completed", None)
    assert await last_event(engine) == ("completed", {"reason": "expired"})


async def test_a_paused_campaign_that_has_not_expired_stays(engine: AsyncEngine) -> None:
    paused = {"state": "paused", "pause_reason": "operator"}
    campaign = await plant_campaign(engine, expires_at=ago(-60), **paused)

    assert await complete(engine) == 0
    assert await campaign_state(engine, campaign) == ("paused", "operator")


async def test_what_was_done_before_its_expiry_does_not_say_so(engine: AsyncEngine) -> None:
    await plant_campaign(engine, expires_at=ago(-60))

    assert await complete(engine) == 1
    assert await last_event(engine) == ("completed", {})


async def last_event(engine: AsyncEngine) -> tuple[str, dict[str, str]]:
    async with engine.connect() as connection:
        statement = text("SELECT kind, details FROM campaign_events ORDER BY id DESC LIMIT 1")
        row = (await connection.execute(statement)).one()
    return row.kind, row.details


async def test_what_nobody_knows_stays_so_and_keeps_it_from_nothing(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine, unknown_policy="resend", unknown_window_s=600)
    await plant_messages(engine, campaign, status="unknown", age=7200)
    heard = """
        INSERT INTO webhook_heartbeats (phone_number_id, received_at, steady_since)
        VALUES (:number, now(), now()), ('', now(), now() - interval '1 day')
    """
    await run(engine, heard, number=NUMBER)
    assert await complete(engine) == 0
    await expire(engine, campaign)

    assert await reconcile(engine) == 0
    assert await complete(engine) == 1
    assert await statuses(engine, campaign) == {"unknown": 1}

    await change_campaign(engine, campaign, expires_at=None)
    assert await reconcile(engine) == 1
