"""Retry and settle: an operator's word on rows that have ended, in steps, under the fence."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from ingest_rows import evidence
from pipeline import Meta, become, refuse, sending
from planting import (
    Past,
    Row,
    campaign_state,
    change_campaign,
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
from redis.asyncio import Redis
from sender_api import Api, add_key
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.ingest.apply import apply
from services.sender.api.keys import Scope
from services.sender.campaigns.requeue import MOST, SCAN
from services.sender.orchestration.completer import complete
from services.sender.pipeline.claim import ClaimedMessage
from services.sender.pipeline.outcome import Accepted, Unknown
from services.sender.pipeline.record import Result, record
from services.sender.pipeline.roster import read_roster

pytest_plugins = ["sender_server"]

FAILED, UNKNOWN, SETTLE = {"status": "failed"}, {"status": "unknown"}, {"as": "failed"}
ME = "key:admin"


async def post(
    api: Api, engine: AsyncEngine, campaign: int, call: str, body: dict[str, Any], **headers: str
) -> httpx.Response:
    async with engine.connect() as connection:
        statement = text("SELECT public_id FROM campaigns WHERE id = :id")
        public_id = await connection.scalar(statement, {"id": campaign})
    return await api.post(f"/v1/campaigns/{public_id}/{call}", json=body, headers=headers)


async def says(engine: AsyncEngine, message_id: int, status: str, **more: Any) -> None:
    """A webhook about the message is applied."""
    async with engine.begin() as connection:
        await apply(connection, [evidence(status, **more)(message_id)])


async def failed_by_meta(engine: AsyncEngine, **campaign: Any) -> tuple[int, int]:
    """A campaign and its message, accepted once and then reported as failed."""
    made = await plant_campaign(engine, **campaign)
    (one,) = await plant_messages(engine, made, status="accepted", wamid="w", spent=1)
    await says(engine, one, "failed", code=131026)
    assert (await one_row(engine, made)).status == "failed"
    return made, one


async def lost(engine: AsyncEngine, **campaign: Any) -> tuple[int, int]:
    """A campaign and its message, sent with nobody knowing what became of it."""
    made = await plant_campaign(engine, **campaign)
    await plant_messages(engine, made)
    (message,) = (await claim_all(engine, made)).messages
    async with engine.begin() as connection:
        await record(connection, [Result(message, Unknown("read_timeout"))])
    return made, message.id


def now_pending(row: Row, attempt: int = 2) -> bool:
    told = (row.status, row.attempt, row.spent, row.reason, row.concluded)
    empty = (row.claimed_at, row.accepted_at, row.failed_at, row.wamid, row.error_code)
    return told == ("pending", attempt, 0, "retry", False) and set(empty) == {None}


async def test_a_failed_row_is_a_new_attempt_with_a_fresh_budget(
    api: Api, engine: AsyncEngine
) -> None:
    campaign, one = await failed_by_meta(engine)

    answer = await post(api, engine, campaign, "retry", FAILED)

    assert (answer.status_code, answer.json()) == (200, {"requeued": 1, "next_cursor": None})
    assert now_pending(await one_row(engine, campaign))
    assert await events(engine, campaign) == [("retried", ME)]
    past = (await history(engine, [one]))[one]
    assert past == [Past(1, "failed", 131026, "w", "code 131026", None)]
    await check_counters(engine, campaign)


async def test_an_unknown_row_is_a_new_attempt(api: Api, engine: AsyncEngine) -> None:
    campaign, one = await lost(engine)

    assert (await post(api, engine, campaign, "retry", UNKNOWN)).json()["requeued"] == 1

    assert now_pending(await one_row(engine, campaign))
    past = (await history(engine, [one]))[one]
    assert past == [Past(1, "unknown", None, None, "read_timeout", None)]
    await check_counters(engine, campaign)


async def test_it_is_sent_again_and_delivered_and_the_campaign_completes_again(
    api: Api, engine: AsyncEngine, redis: Redis
) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 3)
    meta = Meta(lambda _: refuse(131026))
    async with sending(engine, redis, meta):
        await become(engine, campaign, failed=3)
    assert await complete(engine) == 1

    assert (await post(api, engine, campaign, "retry", FAILED)).json()["requeued"] == 3
    assert await campaign_state(engine, campaign) == ("running", None)
    assert await complete(engine) == 0
    again = Meta()
    async with sending(engine, redis, again):
        await become(engine, campaign, accepted=3)

    assert again.attempts == [2, 2, 2]
    assert again.times_sent == meta.times_sent
    for row in await rows(engine, campaign):
        await says(engine, row.id, "delivered", attempt=2, wamid=row.wamid)
    assert await statuses(engine, campaign) == {"delivered": 3}
    assert await complete(engine) == 1
    assert [kind for kind, _ in await events(engine, campaign)] == [
        *("completed", "reopened", "retried", "completed")
    ]
    await check_counters(engine, campaign)


async def test_the_log_says_who_reopened_it(api: Api, engine: AsyncEngine) -> None:
    campaign, _ = await failed_by_meta(engine, state="completed")

    await post(api, engine, campaign, "retry", FAILED)

    assert await events(engine, campaign) == [("reopened", ME), ("retried", ME)]


async def test_a_paused_campaign_stays_paused(api: Api, engine: AsyncEngine) -> None:
    campaign, _ = await failed_by_meta(engine)
    await change_campaign(engine, campaign, state="paused", pause_reason="operator")

    assert (await post(api, engine, campaign, "retry", FAILED)).json()["requeued"] == 1
    assert await campaign_state(engine, campaign) == ("paused", "operator")


async def test_codes_choose_and_without_them_what_has_none_is_found_too(
    api: Api, engine: AsyncEngine
) -> None:
    campaign, other = await plant_campaign(engine), await plant_campaign(engine)
    for code in (131026, 131049, 130472, None):
        await plant_messages(engine, campaign, 2, status="failed", error_code=code)
    await plant_messages(engine, campaign, status="unknown", error_code=131026)
    await plant_messages(engine, campaign, status="delivered")
    await plant_messages(engine, other, status="failed", error_code=131026)

    some = FAILED | {"error_codes": [131026, 130472, 131026]}
    assert (await post(api, engine, campaign, "retry", some)).json()["requeued"] == 4
    left = [row for row in await rows(engine, campaign) if row.status == "failed"]
    assert [row.error_code for row in left] == [131049, 131049, None, None]
    assert (await post(api, engine, campaign, "retry", FAILED)).json()["requeued"] == 4
    assert await statuses(engine, campaign) == {"pending": 8, "unknown": 1, "delivered": 1}
    assert await statuses(engine, other) == {"failed": 1}
    await check_counters(engine, campaign, other)


async def test_nothing_to_retry_changes_nothing(api: Api, engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine, state="completed")
    await plant_messages(engine, campaign, status="read")

    answer = await post(api, engine, campaign, "retry", FAILED)

    assert answer.json() == {"requeued": 0, "next_cursor": None}
    assert await campaign_state(engine, campaign) == ("completed", None)
    assert await events(engine, campaign) == []


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"state": "cancelled"}, "cancelled"),
        ({"state": "draft"}, "draft"),
        ({"expires_at": datetime.now(UTC) - timedelta(seconds=1)}, "expired"),
    ],
    ids=["cancelled", "draft", "expired"],
)
async def test_what_may_not_leave_is_refused(
    api: Api, engine: AsyncEngine, values: dict[str, Any], word: str
) -> None:
    campaign = await plant_campaign(engine, **values)
    await plant_messages(engine, campaign, status="failed")

    answer = await post(api, engine, campaign, "retry", FAILED)

    assert answer.status_code == 409
    assert word in answer.json()["detail"]
    assert await statuses(engine, campaign) == {"failed": 1}


async def test_a_repeated_failure_of_the_attempt_before_does_not_end_the_new_one(
    api: Api, engine: AsyncEngine
) -> None:
    campaign, one = await failed_by_meta(engine)
    await post(api, engine, campaign, "retry", FAILED)

    await says(engine, one, "failed", code=131026)
    await says(engine, one, "sent")

    assert now_pending(await one_row(engine, campaign))


@pytest.mark.parametrize("fail", [True, False], ids=["of a failed one", "of an unknown one"])
async def test_late_proof_of_arrival_cancels_what_has_not_left(
    api: Api, engine: AsyncEngine, *, fail: bool
) -> None:
    campaign, one = await (failed_by_meta if fail else lost)(engine)
    await post(api, engine, campaign, "retry", FAILED if fail else UNKNOWN)

    await says(engine, one, "delivered" if fail else "sent")

    row = await one_row(engine, campaign)
    assert (row.status, row.wamid) == ("delivered" if fail else "sent", "w")
    assert (await claim_all(engine, campaign)).messages == []
    await check_counters(engine, campaign)


@pytest.mark.parametrize(("call", "body"), [("retry", UNKNOWN), ("settle", SETTLE)])
async def test_an_unknown_attempt_is_in_the_history_whoever_made_it_unknown(
    api: Api, engine: AsyncEngine, call: str, body: dict[str, Any]
) -> None:
    campaign = await plant_campaign(engine)
    (one,) = await plant_messages(engine, campaign, status="unknown", error_code=2)

    await post(api, engine, campaign, call, body)

    (past,) = (await history(engine, [one]))[one]
    assert (past.attempt, past.outcome, past.error_code) == (1, "unknown", 2)


async def accepted_late(engine: AsyncEngine, campaign: int, message_id: int) -> int:
    """The recorder of the first attempt reaches the database at last."""
    message = ClaimedMessage(message_id, campaign, 1, 0, "1", {}, 0.0)
    async with engine.begin() as connection:
        return await record(connection, [Result(message, Accepted("w"))])


@pytest.mark.parametrize("told", ["sent", "failed", "delivered"])
async def test_a_late_acceptance_cancels_the_retry_of_what_nobody_knew(
    api: Api, engine: AsyncEngine, told: str
) -> None:
    campaign, one = await lost(engine)
    await post(api, engine, campaign, "retry", UNKNOWN)

    assert await accepted_late(engine, campaign, one) == 1

    row = await one_row(engine, campaign)
    assert (row.status, row.wamid, row.spent, row.reason) == ("accepted", "w", 1, None)
    assert (await claim_all(engine, campaign)).messages == []
    assert (await history(engine, [one]))[one][0].wamid == "w"
    await check_counters(engine, campaign)
    await says(engine, one, told, wamid="w", code=131026 if told == "failed" else None)
    assert (await one_row(engine, campaign)).status == told
    await check_counters(engine, campaign)


async def test_a_late_acceptance_of_what_has_failed_leaves_its_retry(
    api: Api, engine: AsyncEngine
) -> None:
    campaign, one = await failed_by_meta(engine)
    await post(api, engine, campaign, "retry", FAILED)

    assert await accepted_late(engine, campaign, one) == 0

    assert now_pending(await one_row(engine, campaign))


async def test_a_late_acceptance_of_what_is_out_again_changes_nothing(
    api: Api, engine: AsyncEngine
) -> None:
    campaign, one = await lost(engine)
    await post(api, engine, campaign, "retry", UNKNOWN)
    await claim_all(engine, campaign)

    assert await accepted_late(engine, campaign, one) == 0

    assert (await one_row(engine, campaign)).status == "claimed"


async def test_a_late_acceptance_is_worth_more_than_a_settlement(
    api: Api, engine: AsyncEngine
) -> None:
    campaign, one = await lost(engine)
    await post(api, engine, campaign, "settle", SETTLE)

    assert await accepted_late(engine, campaign, one) == 1

    row = await one_row(engine, campaign)
    assert (row.status, row.wamid, row.concluded) == ("accepted", "w", False)
    assert (row.failed_at, row.reason) == (None, None)
    await check_counters(engine, campaign)
    again = await post(api, engine, campaign, "retry", FAILED | {"settled": True})
    assert again.json()["requeued"] == 0


async def test_several_at_once_requeue_each_row_once(api: Api, engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine, state="completed")
    await plant_messages(engine, campaign, 400, status="failed", error_code=131026)

    answers = await asyncio.gather(
        *(post(api, engine, campaign, "retry", FAILED) for _ in range(4))
    )

    assert sum(answer.json()["requeued"] for answer in answers) == 400
    assert {row.attempt for row in await rows(engine, campaign)} == {2}
    kinds = [kind for kind, _ in await events(engine, campaign)]
    assert kinds == ["reopened", "retried"]
    await check_counters(engine, campaign)


async def test_it_goes_through_the_campaign_in_steps(api: Api, engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, MOST + 2, status="failed")

    first = (await post(api, engine, campaign, "retry", FAILED)).json()
    # What fails again behind the cursor is not sent for ever.
    await run(engine, "UPDATE messages SET status = 'failed', due_at = NULL WHERE attempt = 2")
    rest = await post(api, engine, campaign, "retry", FAILED | {"cursor": first["next_cursor"]})

    assert first["requeued"] == MOST
    assert rest.json() == {"requeued": 2, "next_cursor": None}
    assert sorted({row.attempt for row in await rows(engine, campaign)}) == [2]


async def test_rows_are_due_one_after_the_other(api: Api, engine: AsyncEngine) -> None:
    """A claim goes on from where it was: rows due at the same moment would be read each time."""
    campaign = await plant_campaign(engine)
    await plant_messages(engine, campaign, 50, status="failed")

    await post(api, engine, campaign, "retry", FAILED)

    due = [row.due_at for row in await rows(engine, campaign)]
    assert len(set(due)) == 50
    assert due == sorted(due)


@pytest.mark.parametrize("codes", [None, [131026]], ids=["all", "by code"])
async def test_a_step_looks_at_so_many_rows_and_says_where_to_go_on(
    api: Api, engine: AsyncEngine, codes: Sequence[int] | None
) -> None:
    campaign = await plant_campaign(engine)
    # A code stays with a row that is tried again.
    await plant_messages(engine, campaign, SCAN, error_code=131026)
    await plant_messages(engine, campaign, 1, status="failed", error_code=131026)
    body = FAILED | {"error_codes": codes}

    first = (await post(api, engine, campaign, "retry", body)).json()
    rest = (
        await post(api, engine, campaign, "retry", body | {"cursor": first["next_cursor"]})
    ).json()

    assert first["requeued"] == 0
    assert rest == {"requeued": 1, "next_cursor": None}


async def test_a_repeat_gets_the_first_answer(api: Api, engine: AsyncEngine) -> None:
    campaign, _ = await failed_by_meta(engine)
    key = {"idempotency-key": "once"}
    first = await post(api, engine, campaign, "retry", FAILED, **key)
    await run(engine, "UPDATE messages SET status = 'failed', due_at = NULL")

    again = await post(api, engine, campaign, "retry", FAILED, **key)
    other = await post(api, engine, campaign, "retry", FAILED | {"cursor": "1"}, **key)

    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert other.status_code == 422
    assert (await one_row(engine, campaign)).attempt == 2


async def test_settled_is_failed_by_our_own_word(api: Api, engine: AsyncEngine) -> None:
    campaign, one = await lost(engine)

    answer = await post(api, engine, campaign, "settle", SETTLE)

    assert (answer.status_code, answer.json()) == (200, {"settled": 1, "next_cursor": None})
    row = await one_row(engine, campaign)
    assert (row.status, row.reason, row.concluded) == ("failed", "settled", True)
    assert (row.attempt, row.claimed_at) == (1, None)
    assert row.failed_at
    assert (await history(engine, [one]))[one][0].outcome == "unknown"
    assert await events(engine, campaign) == [("settled", ME)]
    await check_counters(engine, campaign)


@pytest.mark.parametrize("status", ["sent", "delivered"])
async def test_evidence_after_a_settlement_wins(api: Api, engine: AsyncEngine, status: str) -> None:
    campaign, one = await lost(engine)
    await post(api, engine, campaign, "settle", SETTLE)

    await says(engine, one, status)

    row = await one_row(engine, campaign)
    assert (row.status, row.concluded, row.reason) == (status, False, None)
    await check_counters(engine, campaign)


async def test_evidence_after_a_settlement_and_a_retry_cancels_the_retry(
    api: Api, engine: AsyncEngine
) -> None:
    campaign, one = await lost(engine)
    await post(api, engine, campaign, "settle", SETTLE)
    await post(api, engine, campaign, "retry", FAILED | {"settled": True})
    assert now_pending(await one_row(engine, campaign))

    await says(engine, one, "sent")

    assert (await one_row(engine, campaign)).status == "sent"
    await check_counters(engine, campaign)


@pytest.mark.parametrize("state", ["running", "completed", "cancelled"])
async def test_what_is_over_can_be_settled_and_stays_over(
    api: Api, engine: AsyncEngine, state: str
) -> None:
    campaign = await plant_campaign(engine, state=state)
    await plant_messages(engine, campaign, 3, status="unknown")
    await plant_messages(engine, campaign, 2, status="claimed")

    assert (await post(api, engine, campaign, "settle", SETTLE)).json()["settled"] == 3

    assert await statuses(engine, campaign) == {"failed": 3, "claimed": 2}
    assert await campaign_state(engine, campaign) == (state, None)
    await check_counters(engine, campaign)


async def test_a_campaign_that_waits_for_unknowns_completes_when_they_are_settled(
    api: Api, engine: AsyncEngine
) -> None:
    campaign, _ = await lost(engine, unknown_policy="resend")
    assert await complete(engine) == 0

    await post(api, engine, campaign, "settle", SETTLE)

    assert await complete(engine) == 1


async def test_the_roster_sees_a_reopened_campaign(api: Api, engine: AsyncEngine) -> None:
    campaign, _ = await failed_by_meta(engine, state="completed")
    await post(api, engine, campaign, "retry", FAILED)

    assert [view.id for view in (await read_roster(engine, {}))[0].campaigns] == [campaign]


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("retry", {}),
        ("retry", {"status": "delivered"}),
        ("retry", FAILED | {"error_codes": []}),
        ("retry", FAILED | {"error_codes": [-1]}),
        ("retry", FAILED | {"cursor": "!"}),
        ("settle", {}),
        ("settle", {"as": "delivered"}),
        ("settle", SETTLE | {"error_codes": [1]}),
    ],
    ids=str,
)
async def test_what_makes_no_sense_is_refused(
    api: Api, engine: AsyncEngine, call: str, body: dict[str, Any]
) -> None:
    campaign, _ = await lost(engine)

    assert (await post(api, engine, campaign, call, body)).status_code == 422


@pytest.mark.parametrize(("call", "body"), [("retry", FAILED), ("settle", SETTLE)])
async def test_it_takes_an_operator_and_a_campaign(
    api: Api, engine: AsyncEngine, call: str, body: dict[str, Any]
) -> None:
    campaign, _ = await lost(engine)
    await add_key(engine, "a-key-that-only-reads", Scope.READ)
    reading = {"authorization": "Bearer a-key-that-only-reads"}

    assert (await post(api, engine, campaign, call, body, **reading)).status_code == 403
    nowhere = "/v1/campaigns/0198d5c7-0000-7000-8000-000000000000"
    assert (await api.post(f"{nowhere}/{call}", json=body)).status_code == 404


async def test_what_was_settled_is_sent_again_only_where_that_is_asked(
    api: Api, engine: AsyncEngine
) -> None:
    """It may have arrived: nobody who retries what failed means it."""
    campaign, _ = await lost(engine)
    await post(api, engine, campaign, "settle", SETTLE)
    assert (await post(api, engine, campaign, "retry", FAILED)).json()["requeued"] == 0
    assert (await one_row(engine, campaign)).status == "failed"
    asked = await post(api, engine, campaign, "retry", FAILED | {"settled": True})
    assert asked.json()["requeued"] == 1
    assert now_pending(await one_row(engine, campaign))


async def test_a_wrong_status_is_told_in_plain_words(api: Api, engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    answer = await post(api, engine, campaign, "retry", {"status": "sent"})
    assert answer.json()["errors"][0]["message"] == "Input should be 'failed' or 'unknown'"
