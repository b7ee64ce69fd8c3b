"""What nobody knows is sent again only under `resend`, and only when silence proves something."""

import asyncio
from typing import Any

import pytest
from planting import (
    NUMBER,
    Past,
    campaign_state,
    check_counters,
    claim_all,
    events,
    history,
    one_row,
    plant_campaign,
    plant_messages,
    rows,
    run,
    statuses,
)
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.orchestration.reconciler import reconcile
from services.sender.pipeline.outcome import Accepted
from services.sender.pipeline.record import Result, record

WINDOW_S = 600
PAUSED: dict[str, Any] = {"state": "paused", "pause_reason": "operator"}


async def heard(
    engine: AsyncEngine, ago: float = 0, number: str = NUMBER, *, steady: float = 86_400
) -> None:
    """A webhook of the number came so many seconds ago; ingest has been there for longer."""
    await run(
        engine,
        """
        INSERT INTO webhook_heartbeats (phone_number_id, received_at, steady_since)
        VALUES (:number, now() - make_interval(secs => :ago), now()),
               ('', now(), now() - make_interval(secs => :steady))
        """,
        number=number,
        ago=float(ago),
        steady=float(steady),
    )


async def waiting(engine: AsyncEngine, ago: float, purpose: str = "apply") -> None:
    """A webhook that came so many seconds ago waits in the inbox."""
    await run(
        engine,
        """
        INSERT INTO webhook_pending (purpose, group_id, received_at)
        VALUES (:purpose, 1, now() - make_interval(secs => :ago))
        """,
        purpose=purpose,
        ago=float(ago),
    )


async def plant(engine: AsyncEngine, count: int = 1, age: float = 700, **campaign: Any) -> int:
    values = {"unknown_policy": "resend", "unknown_window_s": WINDOW_S} | campaign
    made = await plant_campaign(engine, **values)
    await plant_messages(engine, made, count, status="unknown", age=age, wamid="w", spent=1)
    return made


async def test_after_its_window_it_is_pending_again(engine: AsyncEngine) -> None:
    campaign = await plant(engine)
    await heard(engine)

    assert await reconcile(engine) == 1

    row = await one_row(engine, campaign)
    assert (row.status, row.attempt, row.spent) == ("pending", 2, 1)
    assert (row.claimed_at, row.wamid, row.reason) == (None, None, "resend")
    # Late evidence finds the attempt that was left behind.
    past = (await history(engine, [row.id]))[row.id]
    assert past == [Past(1, "unknown", None, "w", None, None)]
    await check_counters(engine, campaign)
    (message,) = (await claim_all(engine, campaign)).messages
    assert message.attempt == 2


async def test_what_the_history_knows_of_the_attempt_stays(engine: AsyncEngine) -> None:
    campaign = await plant(engine)
    await heard(engine)
    await run(
        engine,
        """
        INSERT INTO attempts (message_id, attempt, outcome, details, fbtrace_id)
        SELECT id, 1, 'unknown', 'read_timeout', 't' FROM messages
        """,
    )

    await reconcile(engine)

    row = await one_row(engine, campaign)
    (past,) = (await history(engine, [row.id]))[row.id]
    assert (past.outcome, past.details, past.fbtrace_id) == ("unknown", "read_timeout", "t")


async def test_again_finds_nothing(engine: AsyncEngine) -> None:
    await plant(engine, 3)
    await heard(engine)

    assert [await reconcile(engine) for _ in range(2)] == [3, 0]


async def stays(engine: AsyncEngine, campaign: int) -> None:
    before = await rows(engine, campaign)
    assert await reconcile(engine) == 0
    assert await rows(engine, campaign) == before


async def test_within_its_window_it_stays(engine: AsyncEngine) -> None:
    await heard(engine)
    await stays(engine, await plant(engine, age=500))


async def test_under_hold_it_stays(engine: AsyncEngine) -> None:
    await heard(engine)
    await stays(engine, await plant(engine, unknown_policy="hold"))


async def test_without_any_webhook_of_the_number_it_stays(engine: AsyncEngine) -> None:
    await heard(engine, number="another")
    await stays(engine, await plant(engine))


async def test_when_webhooks_stopped_before_the_windows_end_it_stays(engine: AsyncEngine) -> None:
    await heard(engine, ago=200)
    await stays(engine, await plant(engine))


async def test_soon_after_an_outage_of_ingest_it_stays(engine: AsyncEngine) -> None:
    """Meta sends again what it could not deliver: the evidence may be among that."""
    await heard(engine, steady=WINDOW_S - 10)
    await stays(engine, await plant(engine))


async def test_a_window_after_an_outage_it_is_pending_again(engine: AsyncEngine) -> None:
    await heard(engine, steady=WINDOW_S + 10)
    await plant(engine)

    assert await reconcile(engine) == 1


async def test_a_webhook_after_the_windows_end_is_enough(engine: AsyncEngine) -> None:
    await heard(engine, ago=50)
    await plant(engine)

    assert await reconcile(engine) == 1


async def test_when_evidence_may_wait_in_the_inbox_it_stays(engine: AsyncEngine) -> None:
    await heard(engine)
    await waiting(engine, ago=200)
    await stays(engine, await plant(engine))


@pytest.mark.parametrize(("ago", "purpose"), [(50, "apply"), (200, "relay")])
async def test_what_waits_but_cannot_be_evidence_does_not_matter(
    engine: AsyncEngine, ago: float, purpose: str
) -> None:
    await heard(engine)
    await waiting(engine, ago, purpose)
    await plant(engine)

    assert await reconcile(engine) == 1


@pytest.mark.parametrize(
    "status", ["skipped", "pending", "claimed", "accepted", "sent", "failed", "delivered", "read"]
)
async def test_every_other_state_stays(engine: AsyncEngine, status: str) -> None:
    campaign = await plant(engine, 0)
    await plant_messages(engine, campaign, status=status, age=700)
    await heard(engine)

    await stays(engine, campaign)


async def test_a_cancelled_campaign_sends_nothing_again(engine: AsyncEngine) -> None:
    await heard(engine)
    await stays(engine, await plant(engine, state="cancelled"))


async def test_a_completed_campaign_runs_again(engine: AsyncEngine) -> None:
    campaign = await plant(engine, 3, state="completed")
    await heard(engine)

    assert await reconcile(engine) == 3

    assert await campaign_state(engine, campaign) == ("running", None)
    assert await events(engine, campaign) == [("reopened", "reconciler")]
    await check_counters(engine, campaign)


async def test_a_paused_campaign_stays_paused(engine: AsyncEngine) -> None:
    campaign = await plant(engine, **PAUSED)
    await heard(engine)

    assert await reconcile(engine) == 1

    assert await campaign_state(engine, campaign) == ("paused", "operator")
    assert await events(engine, campaign) == []


async def test_two_at_once_resend_each_row_once(engine: AsyncEngine) -> None:
    campaign = await plant(engine, 400)
    await heard(engine)

    found = await asyncio.gather(*(reconcile(engine) for _ in range(4)))

    assert sum(found) == 400
    assert {row.attempt for row in await rows(engine, campaign)} == {2}
    assert await statuses(engine, campaign) == {"pending": 400}
    await check_counters(engine, campaign)


async def test_a_late_acceptance_of_the_attempt_left_behind_cancels_the_resend(
    engine: AsyncEngine,
) -> None:
    campaign = await plant_campaign(engine, unknown_policy="resend", unknown_window_s=0)
    await plant_messages(engine, campaign)
    (message,) = (await claim_all(engine, campaign)).messages
    await run(engine, "UPDATE messages SET status = 'unknown', claimed_at = now() - interval '1 h'")
    await heard(engine)
    assert await reconcile(engine) == 1

    async with engine.begin() as connection:
        assert await record(connection, [Result(message, Accepted("w"))]) == 1

    row = await one_row(engine, campaign)
    assert (row.status, row.wamid) == ("accepted", "w")
    assert (await claim_all(engine, campaign)).messages == []
    assert (await history(engine, [row.id]))[row.id] == [Past(1, "unknown", None, "w", None, None)]
