"""The inbox: applied in one transaction with its mark, whatever the webhooks hold."""

import asyncio
import random
from datetime import UTC, datetime, timedelta

import pytest
from ingest_rows import (
    AT,
    NUMBER,
    column,
    counted,
    installation_of,
    new_campaign,
    new_message,
    put,
    row_of,
    status,
    webhook,
)
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from services.ingest.inbox import apply_once, measure_once
from services.ingest.metrics import INBOX_DEPTH, LAG_SECONDS
from services.ingest.parked import PATIENCE, retry_parked_once
from shared.domain.tokens import Token

LIFE = [("sent", 1), ("delivered", 2), ("read", 3)]


@pytest.fixture
async def installation(engine):
    return await installation_of(engine)


async def claimed(engine, count=1, **values):
    row = {"status": "claimed", "claimed_at": AT} | values
    async with engine.begin() as connection:
        campaign = await new_campaign(connection)
        return campaign, [await new_message(connection, campaign, **row) for _ in range(count)]


async def rows(engine, campaign):
    async with engine.connect() as connection:
        await counted(connection, campaign)
        found = await connection.execute(
            text(
                "SELECT *, status::text AS status FROM messages WHERE campaign_id = :c ORDER BY id"
            ),
            {"c": campaign},
        )
        return [dict(row) for row in found.mappings()]


async def drain(engine, installation):
    while await apply_once(engine, installation):
        pass
    assert await column(engine, "SELECT group_id FROM webhook_pending") == []


async def test_any_order_and_any_number_of_times_give_the_same_row(engine, installation):
    """Each message gets the same statuses in an order and a cut into batches of its own."""
    dice = random.Random(7)
    campaign, messages = await claimed(engine, 60, accepted_at=AT)
    groups: list[list[dict]] = [[] for _ in range(12)]
    for message in messages:
        said = [
            status(Token(installation, message, 1), name, at=AT + timedelta(seconds=second))
            for name, second in LIFE * 2
        ]
        dice.shuffle(said)
        for place, one in zip(sorted(dice.choices(range(12), k=6)), said, strict=True):
            groups[place].append(one)
    for group in groups:
        await put(engine, *[webhook([one]) for one in group])
        await apply_once(engine, installation)
    await drain(engine, installation)
    seen = {
        (row["status"], row["sent_at"], row["delivered_at"], row["read_at"], row["spent"])
        for row in await rows(engine, campaign)
    }
    times = [AT + timedelta(seconds=second) for _, second in LIFE]
    assert seen == {("read", *times, 1)}


async def test_what_was_applied_may_come_again(engine, installation):
    """A kill after the commit of a batch is one before Meta heard of it: the same comes again."""
    campaign, messages = await claimed(engine, 3)
    body = webhook(
        status(Token(installation, message, 1), name)
        for message, name in zip(messages, ["read", "sent", "failed"], strict=True)
    )
    await put(engine, body)
    await drain(engine, installation)
    before = await rows(engine, campaign)
    await put(engine, body, body)
    await drain(engine, installation)
    assert await rows(engine, campaign) == before


async def test_a_batch_that_did_not_commit_is_still_there(engine, installation):
    """A kill within the transaction leaves the group pending: here it waits for a held row."""
    campaign, (message,) = await claimed(engine)
    await put(engine, webhook([status(Token(installation, message, 1), "read")]))
    async with engine.begin() as holder:
        await holder.execute(
            text("SELECT FROM messages WHERE id = :id FOR UPDATE"), {"id": message}
        )
        applier = asyncio.create_task(apply_once(engine, installation))
        await asyncio.wait([applier], timeout=0.2)
        applier.cancel()
        await asyncio.wait([applier])
    assert len(await column(engine, "SELECT group_id FROM webhook_pending")) == 1
    assert (await rows(engine, campaign))[0]["status"] == "claimed"
    await drain(engine, installation)
    assert (await rows(engine, campaign))[0]["status"] == "read"


async def test_appliers_on_the_same_rows_neither_deadlock_nor_count_twice(
    engine, installation, monkeypatch
):
    # One group at a time, so that every applier meets the rows of the others.
    monkeypatch.setattr("services.ingest.inbox.GROUPS", 1)
    dice = random.Random(3)
    campaign, messages = await claimed(engine, 200)
    for name in ("sent", "delivered", "read", "sent", "read", "delivered") * 4:
        dice.shuffle(messages)
        await put(
            engine, webhook(status(Token(installation, message, 1), name) for message in messages)
        )

    async def applier():
        while await column(engine, "SELECT group_id FROM webhook_pending LIMIT 1"):
            await apply_once(engine, installation)

    async with asyncio.timeout(60):
        await asyncio.gather(*(applier() for _ in range(4)))
    found = await rows(engine, campaign)
    assert {(row["status"], row["spent"]) for row in found} == {("read", 1)}
    assert all(row["sent_at"] == row["delivered_at"] == row["read_at"] == AT for row in found)


async def test_appliers_of_failures_that_pause_and_send_again(engine, installation, monkeypatch):
    """Campaigns, rows and heartbeats are all locked; slices are small, so that there are many."""
    monkeypatch.setattr("services.ingest.inbox.GROUPS", 2)
    monkeypatch.setattr("services.ingest.isolate._SLICE", 25)
    dice = random.Random(5)
    campaign, messages = await claimed(engine, 100)
    said = [
        (name, code) for name in ("sent", "failed", "read") for code in (131049, 132015, 131026)
    ]
    for name, code in said * 2:
        dice.shuffle(messages)
        tokens = [Token(installation, message, 1) for message in messages[:60]]
        await put(engine, webhook(status(token, name, code=code) for token in tokens))

    async def applier():
        while await column(engine, "SELECT group_id FROM webhook_pending LIMIT 1"):
            try:
                await apply_once(engine, installation)
            except DBAPIError as error:
                # A campaign that a later slice pauses: the loop takes the batch again.
                if error.orig.sqlstate != "40P01":
                    raise

    async with asyncio.timeout(60):
        await asyncio.gather(*(applier() for _ in range(3)))
    found = await rows(engine, campaign)
    assert {row["status"] for row in found} <= {"read", "claimed", "pending", "sent", "failed"}
    assert {row["attempt"] for row in found} <= {1, 2}
    assert any(row["attempt"] == 2 for row in found)


@pytest.fixture
async def refusing(engine):
    """A trigger that refuses one row, as bad data would be: the neighbours must not suffer."""
    async with engine.begin() as connection:
        await connection.execute(
            text("""
            CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                IF NEW.wamid LIKE '%refused' THEN
                    RAISE EXCEPTION 'no' USING ERRCODE = '22003';
                ELSIF NEW.wamid LIKE '%later' THEN
                    RAISE EXCEPTION 'not now' USING ERRCODE = '53100';
                END IF;
                RETURN NEW;
            END $$
        """)
        )
        await connection.execute(
            text(
                "CREATE TRIGGER refuse BEFORE UPDATE ON messages"
                " FOR EACH ROW EXECUTE FUNCTION refuse()"
            )
        )
    yield
    async with engine.begin() as connection:
        await connection.execute(text("DROP FUNCTION refuse CASCADE"))


@pytest.mark.usefixtures("refusing")
async def test_poison_is_set_aside_and_its_neighbours_are_applied(engine, installation):
    campaign, messages = await claimed(engine, 40)
    said = [status(Token(installation, message, 1), "read") for message in messages]
    said[17]["id"] = "wamid.refused"
    await put(engine, webhook(said[:30]), b"no json", webhook([{"id": 5}, *said[30:]]))
    await drain(engine, installation)
    found = [row["status"] for row in await rows(engine, campaign)]
    assert found == ["read"] * 17 + ["claimed"] + ["read"] * 22
    errors = await column(engine, "SELECT error FROM webhook_events WHERE state = 'poison'")
    assert sorted(error.split(":")[0] for error in errors) == [
        "bad status",
        "not JSON",
        "refused by the database",
    ]
    bodies = await column(engine, "SELECT body FROM webhook_events WHERE error LIKE 'refused%'")
    assert bodies[0].count(b"wamid.") == 1


@pytest.mark.usefixtures("refusing")
async def test_trouble_of_the_server_is_no_poison(engine, installation):
    """A full disk or a deadlock says nothing about the events: they stay for the next time."""
    campaign, (message,) = await claimed(engine)
    one = status(Token(installation, message, 1), "read", wamid="later")
    await put(engine, webhook([one]))
    with pytest.raises(DBAPIError):
        await apply_once(engine, installation)
    assert len(await column(engine, "SELECT group_id FROM webhook_pending")) == 1
    assert await column(engine, "SELECT id FROM webhook_events") == []
    assert (await rows(engine, campaign))[0]["status"] == "claimed"


async def test_a_group_that_cannot_be_read_is_poison(engine, installation):
    async with engine.begin() as connection:
        await connection.execute(
            text("""
            WITH stored AS (
                INSERT INTO webhook_groups (webhooks, bodies) VALUES (1, 'garbage')
                RETURNING id, received_at)
            INSERT INTO webhook_pending SELECT 'apply', id, received_at FROM stored
        """)
        )
    await drain(engine, installation)
    assert await column(engine, "SELECT error FROM webhook_events") == ["not a group"]


async def test_tokens_of_others_touch_nothing(engine, installation):
    campaign, (message,) = await claimed(engine)
    other = Token("0" * 32, message, 1)
    said = [status(other, "read"), status(other, "failed"), status(None, "sent", wamid="w")]
    await put(engine, webhook(said))
    await drain(engine, installation)
    assert (await rows(engine, campaign))[0]["status"] == "claimed"
    assert await column(engine, "SELECT id FROM webhook_events") == []


async def test_a_failure_without_token_finds_its_row_by_wamid(engine, installation):
    campaign, (message,) = await claimed(
        engine, status="accepted", claimed_at=None, accepted_at=AT, wamid="wamid.x"
    )
    await put(engine, webhook([status(None, "failed", wamid="wamid.x", code=131026)]))
    await drain(engine, installation)
    (row,) = await rows(engine, campaign)
    assert (row["id"], row["status"], row["error_code"]) == (message, "failed", 131026)


async def test_a_failure_without_token_finds_an_attempt_that_was_left_behind(engine, installation):
    campaign, (message,) = await claimed(engine, attempt=2)
    async with engine.begin() as connection:
        await connection.execute(
            text(
                "INSERT INTO attempts (message_id, attempt, outcome, wamid)"
                " VALUES (:id, 1, 'retry', 'wamid.x')"
            ),
            {"id": message},
        )
    await put(engine, webhook([status(None, "failed", wamid="wamid.x", code=131026)]))
    await drain(engine, installation)
    assert (await rows(engine, campaign))[0]["status"] == "claimed"
    assert await column(engine, "SELECT error_code FROM attempts") == [131026]


async def test_a_failure_whose_wamid_is_not_known_yet_waits_for_it(engine, installation):
    campaign, (message,) = await claimed(engine)
    await put(engine, webhook([status(None, "failed", wamid="wamid.x", code=131026)]))
    await drain(engine, installation)
    assert await column(engine, "SELECT state FROM webhook_events") == ["parked"]
    due = text("UPDATE webhook_events SET next_try_at = now()")
    wamid = text("UPDATE messages SET wamid = 'wamid.x' WHERE id = :id")
    async with engine.begin() as connection:
        await connection.execute(due)
    await retry_parked_once(engine, installation)
    assert await column(engine, "SELECT state FROM webhook_events") == ["parked"]
    async with engine.begin() as connection:
        await connection.execute(due)
        await connection.execute(wamid, {"id": message})
    await retry_parked_once(engine, installation)
    assert await column(engine, "SELECT state FROM webhook_events") == []
    (row,) = await rows(engine, campaign)
    assert (row["status"], row["error_code"]) == ("failed", 131026)


async def test_after_ten_minutes_it_is_another_tools(engine, installation):
    received_at = datetime.now(UTC) - PATIENCE - timedelta(seconds=1)
    body = webhook([status(None, "failed", wamid="wamid.x", code=131026)])
    await put(engine, body, at=received_at)
    await drain(engine, installation)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE webhook_events SET next_try_at = now()"))
    await retry_parked_once(engine, installation)
    assert await column(engine, "SELECT state FROM webhook_events") == ["foreign"]
    assert await column(engine, "SELECT next_try_at FROM webhook_events") == [None]


async def test_a_heartbeat_is_the_newest_webhook_of_its_number(engine, installation):
    newest = datetime.now(UTC)
    for at in (newest - timedelta(hours=1), newest, newest - timedelta(minutes=1)):
        await put(engine, webhook([]), webhook([], "840000000000003"), at=at)
        await drain(engine, installation)
    found = await column(engine, "SELECT phone_number_id FROM webhook_heartbeats ORDER BY 1")
    assert found == [NUMBER, "840000000000003"]
    assert set(await column(engine, "SELECT received_at FROM webhook_heartbeats")) == {newest}


async def test_ingest_says_since_when_it_has_been_there(engine):
    steady = "SELECT steady_since FROM webhook_heartbeats WHERE phone_number_id = ''"
    shift = "UPDATE webhook_heartbeats SET received_at = received_at - interval '{}'"
    await measure_once(engine)
    (first,) = await column(engine, steady)
    async with engine.begin() as connection:
        await connection.execute(text(shift.format("50 seconds")))
    await measure_once(engine)
    assert await column(engine, steady) == [first]
    async with engine.begin() as connection:
        await connection.execute(text(shift.format("70 seconds")))
    await measure_once(engine)
    assert (await column(engine, steady))[0] > first


async def test_one_message_with_two_attempts_in_one_batch(engine, installation):
    campaign, (message,) = await claimed(engine, attempt=2)
    first, second = (Token(installation, message, attempt) for attempt in (1, 2))
    await put(engine, webhook([status(second, "sent"), status(first, "delivered")]))
    await drain(engine, installation)
    async with engine.connect() as connection:
        row = await row_of(connection, message)
    assert (row["status"], row["wamid"], row["sent_at"]) == ("delivered", f"wamid.{message}.2", AT)
    assert campaign


async def test_what_waits_is_measured(engine):
    await put(engine, webhook([]))
    await put(engine, webhook([]))
    async with engine.begin() as connection:
        await connection.execute(
            text("UPDATE webhook_pending SET received_at = now() - interval '1 minute'")
        )
    await measure_once(engine)
    assert INBOX_DEPTH._value.get() == 2
    assert 60 <= LAG_SECONDS._value.get() < 70
