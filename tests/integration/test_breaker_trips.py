"""A campaign that fails for more than single persons pauses by itself, at once, and says why."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from pipeline import BOUND_S, Meta, accept, become, refuse, sending
from planting import (
    campaign_state,
    check_counters,
    claim_all,
    plant_campaign,
    plant_messages,
    plant_number,
    rows,
    run,
    statuses,
)
from redis.asyncio import Redis
from sender_api import Api
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from waiting import until

from services.sender.orchestration.breaker import _FAILING, _PERSONAL, break_failing
from shared.db.counters import fold

pytest_plugins = ["sender_server"]

SMALL = {"share": 0.5, "of_last": 20}
TRIPPED = ("paused", "breaker")
RUNNING = ("running", None)
# What leaves in the moment between a reply and its arrival.
MOMENT = 15
RESUME = "UPDATE campaigns SET state = 'running', pause_reason = NULL WHERE state = 'paused'"


async def told(engine: AsyncEngine, campaign: int) -> list[dict[str, Any]]:
    """What the event log says of each pause."""
    query = text("""
        SELECT details || jsonb_build_object('actor', actor) FROM campaign_events
        WHERE campaign_id = :campaign AND kind = 'paused' ORDER BY id
    """)
    async with engine.connect() as connection:
        return list(await connection.scalars(query, {"campaign": campaign}))


async def none_claimed(engine: AsyncEngine, campaign: int) -> bool:
    return "claimed" not in await statuses(engine, campaign)


@pytest.mark.parametrize("code", [100, 131000, 131008, 131009, 131030, 132000, 132012, 199999])
async def test_a_campaign_that_fails_spends_only_what_is_on_the_wire(
    engine: AsyncEngine, redis: Redis, code: int
) -> None:
    await plant_number(engine, rate=400, headroom=0)
    broken = await plant_campaign(engine, breaker=SMALL)
    good = await plant_campaign(engine)
    ids = await plant_messages(engine, broken, 300)
    await plant_messages(engine, good, 60)
    theirs = {f"+{12025000000 + one}" for one in ids}
    meta = Meta(lambda body: refuse(code) if body["to"] in theirs else accept(body))

    async with sending(engine, redis, meta):
        await until(partial(campaign_state, engine, broken), BOUND_S, is_right=TRIPPED.__eq__)
        await become(engine, good, accepted=60)
        await until(partial(none_claimed, engine, broken), BOUND_S, is_right=bool)

    spent = sum(row.spent for row in await rows(engine, broken))
    assert spent == sum(meta.times_sent[phone] for phone in theirs)
    assert 11 <= spent <= 11 + MOMENT
    assert await campaign_state(engine, good) == RUNNING
    (event,) = await told(engine, broken)
    assert event == {
        "actor": "breaker",
        "reason": "breaker",
        "failures": 11,
        "outcomes": 11,
        "limit": 0.5,
        "of_last": 20,
        "codes": {str(code): 11},
    }
    await check_counters(engine, broken, good)


async def test_nothing_leaves_while_the_pause_cannot_be_written(
    engine: AsyncEngine, redis: Redis
) -> None:
    """Else a slow database would cost people: some hundred a second."""
    await plant_number(engine, rate=400, headroom=0)
    campaign = await plant_campaign(engine, breaker=SMALL)
    await plant_messages(engine, campaign, 600)
    meta = Meta(lambda _: refuse(132000))
    async with engine.connect() as holder:
        await holder.execute(text("SELECT FROM campaigns FOR UPDATE"))
        async with sending(engine, redis, meta) as sender:
            await until(lambda: len(meta.requests) >= 11, BOUND_S)
            for _ in range(100):
                await sender.crew.refresh()
            assert await campaign_state(engine, campaign) == RUNNING
            assert len(meta.requests) <= 11 + MOMENT
            await holder.rollback()
            state = partial(campaign_state, engine, campaign)
            await until(state, BOUND_S, is_right=TRIPPED.__eq__)


async def test_a_resume_begins_a_fresh_window(engine: AsyncEngine, redis: Redis) -> None:
    await plant_number(engine, rate=400, headroom=0)
    campaign = await plant_campaign(engine, breaker=SMALL)
    await plant_messages(engine, campaign, 100)
    meta = Meta(lambda _: refuse(132000))
    state = partial(campaign_state, engine, campaign)
    async with sending(engine, redis, meta) as sender:
        await until(state, BOUND_S, is_right=TRIPPED.__eq__)
        await until(partial(none_claimed, engine, campaign), BOUND_S, is_right=bool)
        await sender.crew.refresh()
        first = len(meta.requests)
        await run(engine, RESUME)
        await until(state, BOUND_S, is_right=TRIPPED.__eq__)

    assert len(meta.requests) >= first + 11
    assert [event["failures"] for event in await told(engine, campaign)] == [11, 11]


async def test_a_healthy_part_keeps_it_running(engine: AsyncEngine, redis: Redis) -> None:
    await plant_number(engine, rate=400, headroom=0)
    campaign = await plant_campaign(engine, breaker={"share": 0.5, "of_last": 40})
    await plant_messages(engine, campaign, 120)
    meta = Meta()
    meta.answer = lambda body: refuse(132000) if len(meta.requests) % 3 == 0 else accept(body)
    async with sending(engine, redis, meta):
        await become(engine, campaign, failed=40, accepted=80)

    assert await campaign_state(engine, campaign) == RUNNING


async def minutes(
    engine: AsyncEngine, campaign: int, ago: int, *moved: tuple[str, int, int, int]
) -> None:
    """What moved so many minutes ago: status, code, how many came and how many left."""
    statement = text("""
        INSERT INTO counter_deltas (campaign_id, minute, status, error_code, entered, departed)
        VALUES (:campaign, date_trunc('minute', now()) - make_interval(mins => :ago),
            CAST(:status AS message_status), :code, :entered, :departed)
    """)
    async with engine.begin() as connection:
        for status, code, entered, departed in moved:
            values = {"status": status, "code": code, "entered": entered, "departed": departed}
            await connection.execute(statement, {"campaign": campaign, "ago": ago, **values})


def accepted_then_failed(count: int, code: int) -> list[tuple[str, int, int, int]]:
    return [("accepted", 0, count, count), ("failed", code, count, 0)]


@pytest.mark.parametrize("folded", [False, True])
async def test_failures_by_webhook_trip_it_too(engine: AsyncEngine, *, folded: bool) -> None:
    campaign, other = await plant_campaign(engine), await plant_campaign(engine)
    await minutes(engine, campaign, 0, *accepted_then_failed(51, 131053), ("sent", 0, 30, 0))
    await minutes(engine, other, 0, *accepted_then_failed(50, 131053), ("sent", 0, 30, 0))
    if folded:
        async with engine.begin() as connection:
            await fold(connection)

    assert [await break_failing(engine) for _ in range(2)] == [1, 0]

    assert await campaign_state(engine, campaign) == TRIPPED
    assert await campaign_state(engine, other) == RUNNING
    (event,) = await told(engine, campaign)
    assert event == {
        "actor": "breaker",
        "reason": "breaker",
        "failures": 51,
        "outcomes": 81,
        "limit": 0.5,
        "of_last": 100,
        "codes": {"131053": 51},
    }


@pytest.mark.parametrize("code", [0, *_PERSONAL])
async def test_er_07_single_persons_never_trip_it(engine: AsyncEngine, code: int) -> None:
    campaign = await plant_campaign(engine)
    await minutes(engine, campaign, 0, *accepted_then_failed(5000, code))

    assert await break_failing(engine) == 0


async def test_what_nobody_knows_is_no_failure_of_the_campaigns(engine: AsyncEngine) -> None:
    """What an outage leaves in doubt would pause what is to go on by itself."""
    campaign = await plant_campaign(engine)
    await minutes(engine, campaign, 0, ("unknown", 0, 5000, 0), ("unknown", 506, 5000, 0))

    assert await break_failing(engine) == 0


@pytest.mark.parametrize(
    ("newest", "trips"),
    [
        ([("sent", 0, 4000, 0)], 0),
        ([("sent", 0, 60, 0)], 1),
        ([("sent", 0, 60, 0), ("failed", 132000, 45, 0)], 0),
        ([("sent", 0, 40, 0), ("failed", 132000, 45, 0)], 1),
        ([("sent", 0, 60, 0), ("failed", 132000, 0, 300)], 0),
    ],
)
async def test_the_newest_minutes_count(
    engine: AsyncEngine, newest: list[tuple[str, int, int, int]], trips: int
) -> None:
    campaign = await plant_campaign(engine)
    await minutes(engine, campaign, 1, *accepted_then_failed(300, 132000))
    await minutes(engine, campaign, 0, *newest)

    assert await break_failing(engine) == trips


@pytest.mark.parametrize(("limit", "trips"), [({"share": 0.05, "of_last": 1000}, 1), (None, 0)])
async def test_each_campaign_has_its_own_limit(
    engine: AsyncEngine, limit: Mapping[str, Any] | None, trips: int
) -> None:
    campaign = await plant_campaign(engine, breaker=limit)
    await minutes(engine, campaign, 0, *accepted_then_failed(60, 132000), ("sent", 0, 900, 0))

    assert await break_failing(engine) == trips


@pytest.mark.parametrize("state", ["paused", "completed", "cancelled", "draft"])
async def test_only_a_running_campaign_is_paused(engine: AsyncEngine, state: str) -> None:
    reason = "operator" if state == "paused" else None
    campaign = await plant_campaign(engine, state=state, pause_reason=reason)
    await minutes(engine, campaign, 0, *accepted_then_failed(500, 132000))

    assert await break_failing(engine) == 0
    assert await campaign_state(engine, campaign) == (state, reason)


async def test_what_was_before_a_resume_does_not_count(engine: AsyncEngine) -> None:
    campaign = await plant_campaign(engine)
    await minutes(engine, campaign, 0, *accepted_then_failed(500, 132000))
    await run(
        engine,
        "INSERT INTO campaign_events (campaign_id, kind, actor) VALUES (:id, 'resumed', 'test')",
        id=campaign,
    )
    assert await break_failing(engine) == 0

    await run(engine, "UPDATE campaign_events SET at = at - interval '1 minute'")
    assert await break_failing(engine) == 1


async def test_what_is_settled_is_no_failure_of_now(api: Api, engine: AsyncEngine) -> None:
    """What an outage left unknown an hour ago says nothing of what is sent meanwhile."""
    path = await api.started()
    async with engine.connect() as connection:
        campaign = int(await connection.scalar(text("SELECT min(id) FROM campaigns")) or 0)
    await plant_messages(engine, campaign, 200, status="unknown", error_code=199999)
    await run(engine, "UPDATE counter_deltas SET minute = minute - interval '50 minutes'")
    await plant_messages(engine, campaign, 100, status="delivered")
    assert await break_failing(engine) == 0

    assert (await api.post(f"{path}/settle", json={"as": "failed"})).json()["settled"] == 200
    assert await break_failing(engine) == 0

    # What fails later does count.
    await run(engine, "UPDATE campaign_events SET at = at - interval '1 minute'")
    await minutes(engine, campaign, 0, *accepted_then_failed(300, 132000))
    assert await break_failing(engine) == 1


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """All parts of a plan."""
    return [plan, *(node for part in plan.get("Plans", []) for node in nodes(part))]


async def test_a_look_at_many_campaigns_reads_only_the_last_hour_of_the_running(
    engine: AsyncEngine,
) -> None:
    campaign = await plant_campaign(engine)
    await run(
        engine,
        """
        INSERT INTO campaign_counters
        SELECT c, date_trunc('minute', now()) - make_interval(mins => m), s, 0, 10, 9
        FROM generate_series(100000, 100199) AS c, generate_series(0, 119) AS m,
            unnest(CAST('{accepted,sent,delivered,read}' AS message_status[])) AS s
        """,
    )
    await minutes(engine, campaign, 0, *accepted_then_failed(60, 132000))
    await run(engine, "ANALYZE campaign_counters")
    values = {"share": 0.5, "of_last": 100, "personal": _PERSONAL}
    async with engine.connect() as connection:
        explain = text(f"EXPLAIN (ANALYZE, FORMAT JSON) {_FAILING.text}")
        plan = await connection.scalar(explain, values)

    read = [node for node in nodes(plan[0]["Plan"]) if node.get("Alias") == "campaign_counters"]
    assert sum(node["Actual Rows"] * node["Actual Loops"] for node in read) < 100
    assert not any(node.get("Rows Removed by Filter") for node in read)
    assert await break_failing(engine) == 1


async def test_the_api_sets_shows_and_changes_it(api: Api, engine: AsyncEngine) -> None:
    path = await api.started()
    assert (await api.get(path)).json()["breaker"] == {"share": 0.5, "of_last": 100}

    changed = await api.patch(path, json={"breaker": {"share": 0.2}})
    assert changed.json()["breaker"] == {"share": 0.2, "of_last": 100}
    assert changed.json()["weight"] == 1
    await api.patch(path, json={"weight": 3})
    assert (await api.get(path)).json()["breaker"] == {"share": 0.2, "of_last": 100}
    for wrong in ({"share": 0}, {"share": 1.1}, {"of_last": 5}, {"of_last": 10**9}, {"of": 3}):
        assert (await api.patch(path, json={"breaker": wrong})).status_code == 422

    own = await api.draft(breaker={"share": 0.1, "of_last": 500})
    assert (await api.get(own)).json()["breaker"] == {"share": 0.1, "of_last": 500}

    async with engine.connect() as connection:
        campaign = int(await connection.scalar(text("SELECT min(id) FROM campaigns")) or 0)
    await minutes(engine, campaign, 0, *accepted_then_failed(60, 132000))
    assert await break_failing(engine) == 1
    shown = (await api.get(path)).json()
    (held,) = [one for one in shown["holding"] if one["reason"] == "campaign_paused"]
    assert held["detail"] == "breaker: 60 of 60 failed, by code: 132000 (60)"
    assert held["cure"] == f"POST {path}/resume"
    assert (await claim_all(engine, campaign)).messages == []

    assert (await api.post(f"{path}/resume")).status_code == 200
    assert await break_failing(engine) == 0
