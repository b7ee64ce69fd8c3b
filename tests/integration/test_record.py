"""What each outcome does to a row in each state, under the fence of its attempt."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from planting import (
    Past,
    Row,
    campaign_state,
    check_counters,
    events,
    history,
    one_row,
    plant_campaign,
    plant_messages,
    rows,
)
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.pipeline.claim import ClaimedMessage
from services.sender.pipeline.outcome import Accepted, Failed, Outcome, Retry, Throttled, Unknown
from services.sender.pipeline.record import Result, record

ATTEMPT, SPENT = 2, 1

# Every state that a row may be in when a result comes, as columns to plant.
STATES: dict[str, dict[str, Any]] = {
    "skipped": {"status": "skipped"},
    "pending": {"status": "pending", "error_code": 131000},
    "claimed": {"status": "claimed"},
    "claimed again": {"status": "claimed", "error_code": 131000},
    "unknown": {"status": "unknown"},
    "accepted": {"status": "accepted"},
    "sent": {"status": "sent"},
    "sent with id": {"status": "sent", "wamid": "w"},
    "failed": {"status": "failed", "error_code": 131026, "wamid": "w"},
    "failed concluded": {"status": "failed", "error_code": 131000, "concluded": True},
    "delivered": {"status": "delivered", "wamid": "w"},
    "read": {"status": "read"},
}
OPEN = ("claimed", "claimed again", "unknown")


@dataclass(frozen=True)
class Case:
    """An outcome, and what it makes of an open row and of the history."""

    outcome: Outcome
    becomes: dict[str, Any]
    past: Past | None = None


def past(outcome: str, code: int | None, details: str, trace: str | None = None) -> Past:
    return Past(ATTEMPT, outcome, code, None, details, trace)


CASES = {
    "throttled": Case(
        Throttled("meta", 130429, details="why", fbtrace_id="t"),
        {"status": "pending", "attempt": 3, "error_code": 130429, "reason": "meta"},
        past("throttled", 130429, "why", "t"),
    ),
    "handed back": Case(
        Throttled("drained", sent_nothing=True),
        {"status": "pending", "attempt": 3, "error_code": None, "reason": "drained"},
    ),
    "retry": Case(
        Retry(131000, "meta", details="why", fbtrace_id="t"),
        {"status": "pending", "attempt": 3, "spent": 2, "error_code": 131000, "reason": "meta"},
        past("retry", 131000, "why", "t"),
    ),
    "retry without a code": Case(
        Retry(None, "http_503"),
        {"status": "pending", "attempt": 3, "spent": 2, "error_code": None, "reason": "http_503"},
        past("retry", None, "http_503"),
    ),
    "failed": Case(
        Failed(131026, "meta", "why", "t"),
        {"status": "failed", "spent": 2, "error_code": 131026, "reason": "meta"},
        past("failed", 131026, "why", "t"),
    ),
    "unknown": Case(
        Unknown("read_timeout"),
        {"status": "unknown", "error_code": None, "reason": "read_timeout"},
        past("unknown", None, "read_timeout"),
    ),
    "unknown with a code": Case(
        Unknown("meta", 506, "why"),
        {"status": "unknown", "error_code": 506, "reason": "meta"},
        past("unknown", 506, "why"),
    ),
}


@dataclass(frozen=True)
class Audience:
    """One planted row per state."""

    campaign: int
    ids: dict[str, int]


async def plant_states(
    engine: AsyncEngine, *, attempt: int = ATTEMPT, spent: int = SPENT, **campaign: Any
) -> Audience:
    made = await plant_campaign(engine, **campaign)
    ids = {}
    for name, values in STATES.items():
        columns = {**values, "attempt": attempt, "spent": spent}
        (ids[name],) = await plant_messages(engine, made, **columns)
    return Audience(made, ids)


async def seen(engine: AsyncEngine, audience: Audience) -> dict[str, Row]:
    """Each state's row as it stands."""
    found = {row.id: row for row in await rows(engine, audience.campaign)}
    return {name: found[message_id] for name, message_id in audience.ids.items()}


async def tell(
    engine: AsyncEngine, audience: Audience, outcome: Outcome, *, attempt: int = ATTEMPT
) -> int:
    """Record the outcome for every row in one batch."""
    results = [
        Result(ClaimedMessage(message_id, audience.campaign, attempt, SPENT, "1", {}, 0.0), outcome)
        for message_id in audience.ids.values()
    ]
    async with engine.begin() as connection:
        return await record(connection, results)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_an_outcome_writes_only_over_claimed_and_unknown(
    engine: AsyncEngine, case: Case
) -> None:
    audience = await plant_states(engine)
    before = await seen(engine, audience)

    assert await tell(engine, audience, case.outcome) == len(OPEN)

    after = await seen(engine, audience)
    changing = {**case.becomes, "due_at": None, "claimed_at": None, "failed_at": None}
    for name in STATES:
        if name not in OPEN:
            assert after[name] == before[name], name
            continue
        check_times(before[name], after[name])
        assert replace(after[name], due_at=None, claimed_at=None, failed_at=None) == replace(
            before[name], **changing
        )
    pasts = await history(engine, list(audience.ids.values()))
    expected = [case.past] if case.past else []
    for name, message_id in audience.ids.items():
        assert pasts[message_id] == (expected if name in OPEN else []), name
    await check_counters(engine, audience.campaign)


def check_times(before: Row, after: Row) -> None:
    """Which times an open row has afterwards."""
    assert (after.due_at is not None) == (after.status == "pending")
    assert (after.failed_at is not None) == (after.status == "failed")
    assert after.claimed_at == (before.claimed_at if after.status == "unknown" else None)
    assert after.accepted_at is None


async def test_an_acceptance_is_taken_from_claimed_on(engine: AsyncEngine) -> None:
    audience = await plant_states(engine)
    before = await seen(engine, audience)

    assert await tell(engine, audience, Accepted("w", "held")) == len(STATES) - 2

    after = await seen(engine, audience)
    for name in (*OPEN, "failed concluded"):
        row = after[name]
        # What we concluded ourselves yields, as it does to a webhook; it was spent before.
        spent = SPENT + (name in OPEN)
        assert (row.status, row.attempt, row.spent) == ("accepted", ATTEMPT, spent), name
        assert (row.wamid, row.error_code, row.reason) == ("w", None, "held"), name
        assert (row.due_at, row.claimed_at, row.concluded) == (None, None, False), name
        assert row.accepted_at is not None, name
    await check_counters(engine, audience.campaign)
    for name in set(STATES) - set(OPEN) - {"skipped", "pending", "failed concluded"}:
        # A webhook was faster: it keeps its status, gets the id, and is not spent twice.
        assert after[name].accepted_at is not None, name
        assert replace(after[name], accepted_at=None) == replace(before[name], wamid="w"), name


async def test_an_acceptance_that_finds_no_row_goes_to_the_history(engine: AsyncEngine) -> None:
    audience = await plant_states(engine)
    before = await seen(engine, audience)

    await tell(engine, audience, Accepted("w"))

    after = await seen(engine, audience)
    pasts = await history(engine, list(audience.ids.values()))
    for name, message_id in audience.ids.items():
        if name in {"skipped", "pending"}:
            assert pasts[message_id] == [Past(ATTEMPT, "accepted", None, "w", None, None)]
            assert after[name] == before[name]
        else:
            assert pasts[message_id] == [], name


@pytest.mark.parametrize("told", [1, 3])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_a_result_of_another_attempt_changes_nothing(
    engine: AsyncEngine, case: Case, told: int
) -> None:
    audience = await plant_states(engine)
    before = await seen(engine, audience)

    assert await tell(engine, audience, case.outcome, attempt=told) == 0

    assert await seen(engine, audience) == before
    pasts = await history(engine, list(audience.ids.values()))
    assert not any(pasts.values())
    await check_counters(engine, audience.campaign)


@pytest.mark.parametrize("told", [1, 3])
async def test_an_acceptance_of_another_attempt_goes_to_the_history(
    engine: AsyncEngine, told: int
) -> None:
    audience = await plant_states(engine)
    before = await seen(engine, audience)

    assert await tell(engine, audience, Accepted("w9"), attempt=told) == 0

    assert await seen(engine, audience) == before
    for found in (await history(engine, list(audience.ids.values()))).values():
        assert found == [Past(told, "accepted", None, "w9", None, None)]


@pytest.mark.parametrize("outcome", [case.outcome for case in CASES.values()], ids=CASES.keys())
async def test_recording_twice_is_recording_once(engine: AsyncEngine, outcome: Outcome) -> None:
    audience = await plant_states(engine)
    await tell(engine, audience, outcome)
    once = await seen(engine, audience)

    await tell(engine, audience, outcome)

    assert await seen(engine, audience) == once
    await check_counters(engine, audience.campaign)


async def test_an_acceptance_twice_spends_once(engine: AsyncEngine) -> None:
    audience = await plant_states(engine)
    await tell(engine, audience, Accepted("w"))
    once = await seen(engine, audience)

    await tell(engine, audience, Accepted("w"))

    assert await seen(engine, audience) == once


async def test_the_next_attempt_waits_as_long_as_the_code_asks(engine: AsyncEngine) -> None:
    audience = await plant_states(engine)
    start = datetime.now(UTC)

    await tell(engine, audience, Retry(131049, "meta", timedelta(hours=24)))

    due = (await seen(engine, audience))["claimed"].due_at
    assert due is not None
    assert timedelta(hours=23.9) < due - start < timedelta(hours=26.5)


async def test_a_throttled_row_is_due_at_once(engine: AsyncEngine) -> None:
    audience = await plant_states(engine)

    await tell(engine, audience, Throttled("meta", 130429))

    due = (await seen(engine, audience))["claimed"].due_at
    assert due is not None
    assert abs(due - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.parametrize(("spent", "becomes"), [(3, "pending"), (4, "failed"), (9, "failed")])
async def test_a_retry_ends_when_the_attempts_are_used_up(
    engine: AsyncEngine, spent: int, becomes: str
) -> None:
    audience = await plant_states(engine, spent=spent, max_attempts=5)

    await tell(engine, audience, Retry(131000, "meta"))

    row = (await seen(engine, audience))["claimed"]
    assert (row.status, row.spent, row.error_code) == (becomes, spent + 1, 131000)
    assert row.concluded == (becomes == "failed")
    assert (row.failed_at is not None) == (becomes == "failed")
    assert row.attempt == (ATTEMPT if becomes == "failed" else ATTEMPT + 1)
    await check_counters(engine, audience.campaign)


async def test_throttling_never_uses_attempts_up(engine: AsyncEngine) -> None:
    audience = await plant_states(engine, spent=99, max_attempts=5)

    await tell(engine, audience, Throttled("meta", 130429))

    row = (await seen(engine, audience))["claimed"]
    assert (row.status, row.spent) == ("pending", 99)


async def test_in_a_cancelled_campaign_a_retry_fails_with_its_code(engine: AsyncEngine) -> None:
    audience = await plant_states(engine, state="cancelled")

    await tell(engine, audience, Retry(131000, "meta"))

    row = (await seen(engine, audience))["claimed"]
    assert (row.status, row.spent, row.error_code) == ("failed", SPENT + 1, 131000)
    await check_counters(engine, audience.campaign)


async def test_in_a_cancelled_campaign_what_was_not_judged_waits_for_the_canceller(
    engine: AsyncEngine,
) -> None:
    audience = await plant_states(engine, state="cancelled")

    await tell(engine, audience, Throttled("drained", sent_nothing=True))

    assert (await seen(engine, audience))["claimed"].status == "pending"
    assert await campaign_state(engine, audience.campaign) == ("cancelled", None)


@pytest.mark.parametrize("outcome", [Retry(131000, "meta"), Throttled("meta", 130429)])
async def test_a_completed_campaign_runs_again_for_a_row_that_waits(
    engine: AsyncEngine, outcome: Outcome
) -> None:
    audience = await plant_states(engine, state="completed")

    await tell(engine, audience, outcome)

    assert await campaign_state(engine, audience.campaign) == ("running", None)
    assert await events(engine, audience.campaign) == [("reopened", "sender")]


@pytest.mark.parametrize("outcome", [Accepted("w"), Unknown("reset"), Failed(131026, "meta")])
async def test_a_completed_campaign_stays_so_for_a_row_that_is_done(
    engine: AsyncEngine, outcome: Outcome
) -> None:
    audience = await plant_states(engine, state="completed")

    await tell(engine, audience, outcome)

    assert await campaign_state(engine, audience.campaign) == ("completed", None)
    assert await events(engine, audience.campaign) == []


async def test_different_outcomes_in_one_batch(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    ids = await plant_messages(engine, campaign, 4, status="claimed")
    outcomes: list[Outcome] = [
        Accepted("w"),
        Retry(131000, "meta"),
        Failed(131026, "meta"),
        Unknown("reset"),
    ]
    messages = [ClaimedMessage(one, campaign, 1, 0, "1", {}, 0.0) for one in ids]
    results = [Result(one, what) for one, what in zip(messages, outcomes, strict=True)]

    async with engine.begin() as connection:
        assert await record(connection, results[::-1]) == 4

    found = [(row.status, row.attempt, row.spent) for row in await rows(engine, campaign)]
    assert found == [("accepted", 1, 1), ("pending", 2, 1), ("failed", 1, 1), ("unknown", 1, 0)]
    await check_counters(engine, campaign)


async def test_a_message_that_was_refused_before_sending_spends_nothing(
    engine: AsyncEngine,
) -> None:
    campaign = await plant_campaign(engine)
    (message_id,) = await plant_messages(engine, campaign, status="claimed")
    message = ClaimedMessage(message_id, campaign, 1, 0, "1", {}, 0.0)

    async with engine.begin() as connection:
        await record(connection, [Result(message, Failed(None, "missing_column", concluded=True))])

    row = await one_row(engine, campaign)
    assert (row.status, row.concluded, row.reason) == ("failed", True, "missing_column")
    assert row.spent == 0
    await check_counters(engine, campaign)
