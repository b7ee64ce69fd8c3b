"""The rules by which a status webhook may move a row, one case each, against real Postgres."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ingest_rows import AT, counted, evidence, history, new_campaign, new_message, row_of
from sqlalchemy import text

from services.ingest.apply import apply
from services.sender.orchestration.canceller import skip_pending
from shared.domain.status import Status

HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Case:
    """A row, what Meta says of it, and what becomes of the row (`None`: nothing changes)."""

    row: dict[str, Any]
    says: list
    becomes: dict[str, Any] | None = None
    verdict: str = ""
    past: dict[str, Any] | None = None
    campaign: dict[str, Any] = field(default_factory=dict)


CLAIMED = {"status": "claimed", "claimed_at": AT}
ACCEPTED = {"status": "accepted", "accepted_at": AT, "wamid": "w", "spent": 1}
UNKNOWN = {"status": "unknown", "claimed_at": AT, "reason": "read_timeout", "error_code": 2}
PENDING = {"status": "pending", "due_at": AT}
DELIVERED = ACCEPTED | {"status": "delivered", "delivered_at": AT}
CONCLUDED = {"status": "failed", "failed_at": AT, "reason": "settled", "concluded": True}
META_FAILED = ACCEPTED | {"status": "failed", "failed_at": AT, "error_code": 131026}
FREE = {"due_at": None, "claimed_at": None, "error_code": None, "reason": None}
LOST = {"attempt": 1, "outcome": "unknown"}

CASES = {
    "a status that overtakes its own reply finds the claimed row": Case(
        CLAIMED,
        [evidence("sent")],
        FREE | {"status": "sent", "accepted_at": AT, "sent_at": AT, "wamid": "w", "spent": 1},
        "moved",
    ),
    "evidence ends what nobody knew": Case(
        UNKNOWN, [evidence("delivered")], FREE | {"status": "delivered", "spent": 1}, "moved"
    ),
    "an accepted row is judged already": Case(
        ACCEPTED, [evidence("sent")], {"status": "sent", "spent": 1, "accepted_at": AT}, "moved"
    ),
    "a late sent fills its time only": Case(
        DELIVERED,
        [evidence("sent", at=AT - HOUR)],
        {"status": "delivered", "sent_at": AT - HOUR, "delivered_at": AT},
        "filled",
    ),
    "a repeated delivered changes nothing": Case(
        DELIVERED, [evidence("delivered")], None, "filled"
    ),
    "all statuses of one batch leave their times": Case(
        CLAIMED,
        [evidence("read", also={"sent": AT, "delivered": AT + HOUR}, at=AT + 2 * HOUR)],
        {
            "status": "read",
            "accepted_at": AT,
            "sent_at": AT,
            "delivered_at": AT + HOUR,
            "read_at": AT + 2 * HOUR,
        },
        "moved",
    ),
    "another wamid for the same attempt is foreign": Case(
        ACCEPTED, [evidence("read", wamid="clone")], None, "foreign"
    ),
    "an attempt that was never made is foreign": Case(
        ACCEPTED, [evidence("read", attempt=2)], None, "foreign"
    ),
    "a pending row has not sent this attempt": Case(PENDING, [evidence("sent")], None, "foreign"),
    "a skipped row has not sent this attempt": Case(
        {"status": "skipped", "reason": "opted_out"}, [evidence("sent")], None, "foreign"
    ),
    "a failure keeps code, reason and details": Case(
        ACCEPTED,
        [evidence("failed", code=131026)],
        {"status": "failed", "error_code": 131026, "reason": "meta", "failed_at": AT},
        "moved",
        {"attempt": 1, "outcome": "failed", "error_code": 131026, "details": "code 131026"},
    ),
    "a failure without a code is one": Case(
        ACCEPTED, [evidence("failed")], {"status": "failed", "error_code": None}, "moved"
    ),
    "a failure Meta reported does not yield to sent": Case(
        META_FAILED, [evidence("sent")], {"status": "failed", "sent_at": AT}, "filled"
    ),
    "a failure Meta reported yields to delivered": Case(
        META_FAILED,
        [evidence("delivered")],
        FREE | {"status": "delivered", "failed_at": AT, "delivered_at": AT},
        "moved",
    ),
    "delivered does not yield to failed, but both are kept": Case(
        DELIVERED,
        [evidence("failed", code=131026)],
        {"status": "delivered", "failed_at": AT, "error_code": None},
        "filled",
        {"attempt": 1, "outcome": "failed", "error_code": 131026, "evidence": "failed"},
    ),
    "delivered and failed at once": Case(
        ACCEPTED,
        [evidence("delivered", also={"failed": AT - HOUR}, code=131026)],
        {"status": "delivered", "failed_at": AT - HOUR, "error_code": None},
        "moved",
        {"attempt": 1, "outcome": "failed", "error_code": 131026, "evidence": "delivered"},
    ),
    "what we concluded yields to sent": Case(
        CONCLUDED, [evidence("sent")], FREE | {"status": "sent", "concluded": False}, "moved"
    ),
    "what we concluded yields to Meta's failure": Case(
        CONCLUDED,
        [evidence("failed", code=131026)],
        {"status": "failed", "concluded": False, "error_code": 131026, "reason": "meta"},
        "moved",
    ),
    "what we concluded is not sent again": Case(
        CONCLUDED, [evidence("failed", code=131049)], {"status": "failed", "attempt": 1}, "moved"
    ),
    "an earlier attempt was delivered while the row waits": Case(
        PENDING | {"attempt": 2},
        [evidence("delivered")],
        FREE | {"status": "delivered", "wamid": "w", "attempt": 2, "spent": 0},
        "moved",
        {"attempt": 1, "outcome": "accepted", "evidence": "delivered"},
    ),
    "an earlier attempt was read while the next is out": Case(
        CLAIMED | {"attempt": 2},
        [evidence("read")],
        FREE | {"status": "read", "wamid": None},
        "moved",
    ),
    "the next attempt keeps its own wamid": Case(
        ACCEPTED | {"attempt": 2, "wamid": "w2"},
        [evidence("delivered"), evidence("read", attempt=2, wamid="w2")],
        {"status": "read", "wamid": "w2"},
        "moved",
    ),
    "an unknown attempt was sent: the resend is cancelled": Case(
        PENDING | {"attempt": 2},
        [evidence("sent")],
        FREE | {"status": "sent", "wamid": "w", "spent": 1},
        "moved",
        LOST | {"evidence": "sent", "wamid": "w"},
        {"lost": True},
    ),
    "an unknown attempt was sent: a skipped row too": Case(
        {"status": "skipped", "attempt": 2, "reason": "cancelled"},
        [evidence("sent")],
        FREE | {"status": "sent", "wamid": "w"},
        "moved",
        campaign={"lost": True},
    ),
    "an unknown attempt failed: the resend is cancelled": Case(
        PENDING | {"attempt": 2},
        [evidence("failed", code=131026)],
        {"status": "failed", "error_code": 131026, "due_at": None},
        "moved",
        {"attempt": 1, "outcome": "failed"},
        {"lost": True},
    ),
    "an unknown attempt was sent after the resend has left": Case(
        CLAIMED | {"attempt": 2},
        [evidence("sent")],
        None,
        "history",
        LOST | {"evidence": "sent"},
        {"lost": True},
    ),
    "an attempt that is known to have ended was sent": Case(
        PENDING | {"attempt": 2},
        [evidence("sent")],
        None,
        "history",
        {"attempt": 1, "outcome": "accepted", "evidence": "sent"},
    ),
    "an earlier attempt failed": Case(
        DELIVERED | {"attempt": 2, "wamid": "w2"},
        [evidence("failed", code=131026)],
        None,
        "history",
        {"attempt": 1, "outcome": "failed", "error_code": 131026, "wamid": "w"},
    ),
    "a row goes on with the earlier attempt it took for its own": Case(
        ACCEPTED | {"status": "sent", "sent_at": AT, "attempt": 2, "wamid": "w"},
        [evidence("failed", code=131026)],
        {"status": "failed", "error_code": 131026},
        "moved",
    ),
    "later: pending again": Case(
        ACCEPTED | {"status": "sent", "sent_at": AT},
        [evidence("failed", code=131049)],
        {
            "status": "pending",
            "attempt": 2,
            "due_at": AT + 24 * HOUR,
            "error_code": 131049,
            "wamid": None,
            "claimed_at": None,
            "accepted_at": None,
            "sent_at": None,
            "failed_at": None,
            "spent": 1,
        },
        "requeued",
        {"attempt": 1, "outcome": "failed", "error_code": 131049, "wamid": "w"},
    ),
    "later, before its own reply": Case(
        CLAIMED, [evidence("failed", code=131049)], {"status": "pending", "spent": 1}, "requeued"
    ),
    "later, long ago: now": Case(
        ACCEPTED,
        [evidence("failed", code=131049, at=AT - 100 * HOUR)],
        {"status": "pending", "attempt": 2},
        "requeued",
    ),
    "evidence of an earlier attempt only rises": Case(
        DELIVERED | {"attempt": 2, "wamid": "w2"},
        [evidence("delivered", at=AT + HOUR), evidence("sent")],
        None,
        "history",
        {"attempt": 1, "evidence": "delivered", "evidence_at": AT + HOUR},
    ),
    "later, twice": Case(
        PENDING | {"attempt": 2, "error_code": 131049},
        [evidence("failed", code=131049)],
        None,
        "history",
    ),
    "later, attempts used up": Case(
        ACCEPTED | {"spent": 5},
        [evidence("failed", code=131049)],
        {"status": "failed", "error_code": 131049, "spent": 5, "attempt": 1},
        "moved",
    ),
    "later, the claimed attempt was the last": Case(
        CLAIMED | {"spent": 4},
        [evidence("failed", code=131049)],
        {"status": "failed", "spent": 5},
        "moved",
    ),
    "later, campaign cancelled": Case(
        ACCEPTED,
        [evidence("failed", code=131049)],
        {"status": "failed", "error_code": 131049},
        "moved",
        campaign={"state": "cancelled"},
    ),
    "later, campaign expired": Case(
        ACCEPTED,
        [evidence("failed", code=131049)],
        {"status": "failed"},
        "moved",
        campaign={"expires_at": datetime(2026, 1, 1, tzinfo=UTC)},
    ),
    "caught in a stop: pending and untouched": Case(
        ACCEPTED | {"status": "sent", "sent_at": AT},
        [evidence("failed", code=131042)],
        {"status": "pending", "attempt": 2, "spent": 0, "error_code": 131042, "wamid": None},
        "requeued",
        {"attempt": 1, "outcome": "failed", "error_code": 131042},
    ),
    "caught in a stop, before its own reply": Case(
        CLAIMED,
        [evidence("failed", code=131031)],
        {"status": "pending", "attempt": 2, "spent": 0},
        "requeued",
    ),
    "caught in a stop, however many attempts": Case(
        ACCEPTED | {"spent": 5},
        [evidence("failed", code=131048)],
        {"status": "pending", "spent": 4},
        "requeued",
    ),
    "caught in a stop, campaign cancelled": Case(
        ACCEPTED,
        [evidence("failed", code=131042)],
        {"status": "failed", "error_code": 131042, "spent": 1},
        "moved",
        campaign={"state": "cancelled"},
    ),
    "held for an assessment and dropped: an operator decides": Case(
        ACCEPTED,
        [evidence("failed", code=132015)],
        {"status": "failed", "error_code": 132015},
        "moved",
    ),
    "held with its whole portfolio and dropped": Case(
        ACCEPTED,
        [evidence("failed", code=135000)],
        {"status": "failed", "error_code": 135000},
        "moved",
    ),
    "may pass, at no time of Meta's": Case(
        ACCEPTED,
        [evidence("failed", code=131000)],
        {"status": "pending", "attempt": 2, "spent": 1, "error_code": 131000},
        "requeued",
    ),
    "may pass, attempts used up": Case(
        ACCEPTED | {"spent": 5},
        [evidence("failed", code=131000)],
        {"status": "failed", "error_code": 131000},
        "moved",
    ),
    "later, but delivered before": Case(
        DELIVERED, [evidence("failed", code=131049)], {"status": "delivered"}, "filled"
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


async def test_rule(engine, case):
    async with engine.begin() as connection:
        values = dict(case.campaign)
        lost = values.pop("lost", False)
        campaign = await new_campaign(connection, **values)
        message = await new_message(connection, campaign, **case.row)
        if lost:
            await connection.execute(
                text(
                    "INSERT INTO attempts (message_id, attempt, outcome) VALUES (:id, 1, 'unknown')"
                ),
                {"id": message},
            )
        before = await row_of(connection, message)
    for make in case.says:
        async with engine.begin() as connection:
            counts = await apply(connection, [make(message)])
    async with engine.connect() as connection:
        after = await row_of(connection, message)
        past = await history(connection, message)
        await counted(connection, campaign)
    assert +counts == {case.verdict: 1}
    expected = before if case.becomes is None else before | case.becomes
    keys = before if case.becomes is None else case.becomes
    assert {key: after[key] for key in keys} == {key: expected[key] for key in keys}
    if case.past:
        found = next(one for one in past if one["attempt"] == case.past["attempt"])
        assert {key: found[key] for key in case.past} == case.past


@pytest.mark.parametrize("name", CASES)
async def test_twice_is_once(engine, name):
    """Applying the same again, and then all of it once more, leaves row and history alone."""
    case = CASES[name]
    async with engine.begin() as connection:
        campaign = await new_campaign(connection)
        message = await new_message(connection, campaign, **case.row)
    seen = []
    for _ in range(3):
        for make in case.says:
            async with engine.begin() as connection:
                await apply(connection, [make(message)])
        async with engine.connect() as connection:
            row = await row_of(connection, message)
            seen.append((row, await history(connection, message)))
            await counted(connection, campaign)
    assert seen[1] == seen[0]
    assert seen[2] == seen[0]


async def test_a_message_that_is_not_there_is_foreign(engine):
    make: Callable = evidence("read")
    async with engine.begin() as connection:
        assert +await apply(connection, [make(2**60)]) == {"foreign": 1}


async def test_later_makes_a_completed_campaign_run_again(engine):
    async with engine.begin() as connection:
        campaign = await new_campaign(connection, state="completed")
        message = await new_message(connection, campaign, **ACCEPTED)
        await apply(connection, [evidence("failed", code=131049)(message)])
        state = await connection.scalar(
            text("SELECT state FROM campaigns WHERE id = :id"), {"id": campaign}
        )
        kinds = await connection.scalars(text("SELECT kind FROM campaign_events"))
    assert state == "running"
    assert kinds.all() == ["reopened"]


async def test_later_from_long_ago_is_due_now(engine):
    """A claim starts at its watermark: what becomes pending behind it would wait for a rescan."""
    async with engine.begin() as connection:
        campaign = await new_campaign(connection)
        message = await new_message(connection, campaign, **ACCEPTED)
        await apply(connection, [evidence("failed", code=131049, at=AT - 100 * HOUR)(message)])
        late = text("SELECT due_at >= now() FROM messages WHERE id = :id")
        assert await connection.scalar(late, {"id": message})


async def test_without_a_time_of_metas_the_backoff_is_ours(engine):
    """Up to 2^spent seconds after the event, as the sender does."""
    just = datetime.now(UTC)
    async with engine.begin() as connection:
        campaign = await new_campaign(connection)
        messages = [
            await new_message(connection, campaign, **ACCEPTED | {"spent": 4, "wamid": f"w{n}"})
            for n in range(100)
        ]
        told = [
            evidence("failed", code=131000, wamid=f"w{n}", at=just)(message)
            for n, message in enumerate(messages)
        ]
        await apply(connection, told)
        rows = [await row_of(connection, message) for message in messages]
    waits = sorted(row["due_at"] - just for row in rows)
    assert waits[0] < timedelta(seconds=3)
    assert timedelta(seconds=12) < waits[-1] <= timedelta(seconds=16)


async def test_a_limit_per_person_is_tried_twice_in_all(engine):
    """And twice again when an operator has asked for it."""
    async with engine.begin() as connection:
        campaign = await new_campaign(connection)
        message = await new_message(connection, campaign, **ACCEPTED)
        await apply(connection, [evidence("failed", code=131049)(message)])
        assert (await row_of(connection, message))["status"] == "pending"
        again = text("""
            UPDATE messages SET status = 'accepted', wamid = 'w' || attempt, due_at = NULL,
                accepted_at = now(), spent = spent + 1 WHERE id = :id
        """)
        await connection.execute(again, {"id": message})
        await apply(connection, [evidence("failed", code=131049, attempt=2, wamid="w2")(message)])
        row = await row_of(connection, message)
        assert (row["status"], row["error_code"], row["attempt"]) == ("failed", 131049, 2)

        operator = text("""
            UPDATE messages SET status = 'accepted', wamid = 'w3', attempt = 3, spent = 1,
                failed_at = NULL, error_code = NULL WHERE id = :id
        """)
        await connection.execute(operator, {"id": message})
        await apply(connection, [evidence("failed", code=131049, attempt=3, wamid="w3")(message)])
        assert (await row_of(connection, message))["status"] == "pending"


async def test_only_the_row_that_may_is_sent_again(engine):
    """Rows of one campaign and one batch: each is judged by itself."""
    later = evidence("failed", code=131049)
    async with engine.begin() as connection:
        campaign = await new_campaign(connection)
        again = await new_message(connection, campaign, **ACCEPTED)
        concluded = await new_message(connection, campaign, **CONCLUDED | {"wamid": "w"})
        adopted = await new_message(
            connection, campaign, **ACCEPTED | {"status": "sent", "sent_at": AT, "attempt": 2}
        )
        await apply(connection, [later(again), later(concluded), later(adopted)])
        rows = [await row_of(connection, message) for message in (again, concluded, adopted)]
    assert [row["status"] for row in rows] == ["pending", "failed", "failed"]


async def test_a_campaign_that_is_cancelled_meanwhile_sends_nothing_again(engine):
    """Neither waits for the other: what the cancel could not see yet, the canceller empties."""
    async with engine.begin() as connection:
        campaign = await new_campaign(connection)
        message = await new_message(connection, campaign, **ACCEPTED)
    async with engine.begin() as canceller:
        await canceller.execute(
            text("UPDATE campaigns SET state = 'cancelled' WHERE id = :id"), {"id": campaign}
        )
        async with asyncio.timeout(10), engine.begin() as connection:
            await apply(connection, [evidence("failed", code=131049)(message)])
    await skip_pending(engine)
    async with engine.connect() as connection:
        row = await row_of(connection, message)
    assert (row["status"], row["reason"]) == ("skipped", "cancelled")


async def test_a_final_failure_leaves_a_completed_campaign_alone(engine):
    async with engine.begin() as connection:
        campaign = await new_campaign(connection, state="completed")
        message = await new_message(connection, campaign, **ACCEPTED | {"spent": 5})
        await apply(connection, [evidence("failed", code=131049)(message)])
        state = await connection.scalar(
            text("SELECT state FROM campaigns WHERE id = :id"), {"id": campaign}
        )
    assert state == "completed"


async def test_a_paused_template_pauses_once(engine):
    """Meta repeats webhooks: what an operator has resumed since is not paused by old news."""
    resume = text("UPDATE campaigns SET state = 'running', pause_reason = NULL")
    state = text("SELECT state, pause_reason FROM campaigns")
    async with engine.begin() as connection:
        campaign = await new_campaign(connection)
        first = await new_message(connection, campaign, **ACCEPTED)
        second = await new_message(connection, campaign, **ACCEPTED | {"wamid": "w2"})
    say = evidence("failed", code=132015)
    async with engine.begin() as connection:
        await apply(connection, [say(first)])
        assert (await connection.execute(state)).one() == ("paused", "template")
        await connection.execute(resume)
        await apply(connection, [say(first)])
        assert (await connection.execute(state)).one() == ("running", None)
        await apply(connection, [evidence("failed", code=132015, wamid="clone")(second)])
        assert (await connection.execute(state)).one() == ("running", None)
        await apply(connection, [evidence("failed", code=132015, wamid="w2")(second)])
        assert (await connection.execute(state)).one() == ("paused", "template")


async def test_who_stopped_marketing_is_opted_out(engine):
    async with engine.begin() as connection:
        campaign = await new_campaign(connection)
        message = await new_message(connection, campaign, **ACCEPTED)
        await connection.execute(
            text(
                "INSERT INTO recipients (id, campaign_id, upload_id, person, phone)"
                " VALUES (:id, :campaign, 1, '+12025550142', '+12025550142')"
            ),
            {"id": message, "campaign": campaign},
        )
        await apply(connection, [evidence("failed", code=131050)(message)])
        people = await connection.scalars(text("SELECT person FROM opt_outs"))
    assert people.all() == ["+12025550142"]


def test_statuses_of_webhooks_are_above_what_we_write():
    assert min(Status.SENT.rank, Status.FAILED.rank) > Status.ACCEPTED.rank
