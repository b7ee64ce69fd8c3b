"""The number's bucket in real Valkey, in Valkey's own time."""

import asyncio
import time
from collections.abc import AsyncGenerator
from itertools import pairwise

import pytest
from redis.asyncio import Redis

from services.sender.pipeline.bucket import Bucket, Slots
from shared.redis import create_redis

NUMBER = "100000000000001"
KEY = f"headrace:bucket:{NUMBER}"
BOUND_S = 60


@pytest.fixture
def bucket(redis: Redis) -> Bucket:
    return Bucket(redis, NUMBER)


@pytest.fixture
async def other_redis(redis_url: str) -> AsyncGenerator[Redis]:
    """A second process' connection."""
    client = create_redis(redis_url)
    yield client
    await client.aclose()


async def now(redis: Redis) -> float:
    seconds, microseconds = await redis.time()
    return float(seconds) + float(microseconds) / 1e6


async def clock(redis: Redis, name: str = "campaign") -> float:
    return float(await redis.hget(KEY, name) or 0)


async def unpause(redis: Redis) -> None:
    """As if the pause were over."""
    await redis.hdel(KEY, "paused_until")


def times(slots: Slots) -> list[float]:
    return [slots.redis_at(place) for place in range(slots.count)]


def most_in_a_second(moments: list[float]) -> int:
    """The most slots of any closed second. Slots are kept to the microsecond."""
    ordered, first, most = sorted(moments), 0, 0
    for last, moment in enumerate(ordered):
        while moment - ordered[first] > 1.0 + 1e-6:
            first += 1
        most = max(most, last - first + 1)
    return most


@pytest.mark.parametrize(
    ("rate", "headroom", "pace"),
    [(80, 0.0, 80), (80, 0.2, 64), (80, 0.1, 72), (7, 0.5, 3), (10, 0.9, 1), (1, 0.2, 0.8)],
)
async def test_slots_are_spaced_a_little_wider_than_the_rate(
    bucket: Bucket, redis: Redis, rate: int, headroom: float, pace: float
) -> None:
    before = await now(redis)
    slots = await bucket.book(5, rate, headroom)

    assert (slots.count, slots.wait, slots.pace) == (5, 0.0, 1.0)
    assert slots.spacing == pytest.approx(1.01 / pace, abs=1e-6)
    assert before <= slots.redis_first
    assert times(slots) == pytest.approx(
        [slots.redis_first + place * 1.01 / pace for place in range(5)], abs=1e-5
    )


async def test_the_next_block_begins_where_the_last_one_ended(bucket: Bucket, redis: Redis) -> None:
    first = await bucket.book(1, 1000, 0)
    booked = await clock(redis)
    await redis.hset(KEY, "campaign", repr(booked + 0.04))
    second = await bucket.book(1, 1000, 0)

    assert booked == pytest.approx(first.redis_at(1), abs=1e-5)
    assert second.redis_first >= booked + 0.04 - 1e-5


async def test_our_times_are_the_same_moments_on_our_clock(bucket: Bucket, redis: Redis) -> None:
    asked = time.monotonic()
    slots = await bucket.book(10, 100, 0)
    redis_now, answered = await now(redis), time.monotonic()

    for place in (0, 9):
        ahead = slots.redis_at(place) - redis_now
        assert asked + ahead - 1 < slots.at(place) < answered + ahead + 1
        assert slots.at(place) - slots.at(0) == pytest.approx(place * slots.spacing)


async def test_nothing_is_booked_while_the_clock_is_far_ahead(bucket: Bucket, redis: Redis) -> None:
    await bucket.book(1, 100, 0)
    await redis.hset(KEY, "campaign", repr(await now(redis) + 9))
    before = await clock(redis)

    refused = await bucket.book(5, 100, 0)

    assert refused.count == 0
    assert 0 < refused.wait <= 9 - 0.075
    assert await clock(redis) == before


async def test_a_booking_never_starts_more_than_the_horizon_ahead(
    bucket: Bucket, redis: Redis
) -> None:
    booked = 0
    for _ in range(200):
        asked = await now(redis)
        slots = await bucket.book(10, 1000, 0)
        booked += slots.count
        if slots.count:
            answered = await now(redis)
            assert asked <= slots.redis_first <= answered + 0.075 + 1e-5
    assert booked


async def test_numbers_have_buckets_of_their_own(bucket: Bucket, redis: Redis) -> None:
    await bucket.pause(100)

    assert (await Bucket(redis, "other").book(1, 10, 0)).count == 1
    assert (await bucket.book(1, 10, 0)).count == 0


async def test_many_bookers_never_get_more_than_the_rate_in_any_second(
    bucket: Bucket, other_redis: Redis
) -> None:
    rate, wanted = 1000, 2500
    buckets = (bucket, Bucket(other_redis, NUMBER))
    moments: list[float] = []

    async def book(one: Bucket) -> None:
        while len(moments) < wanted:
            moments.extend(times(await one.book(20, rate, 0)))

    bookers = [book(one) for one in buckets for _ in range(4)]
    await asyncio.wait_for(asyncio.gather(*bookers), BOUND_S)

    assert most_in_a_second(moments) <= rate
    assert all(later - earlier >= 0.00101 - 2e-6 for earlier, later in pairwise(sorted(moments)))


async def test_a_new_bucket_lets_no_burst_through(bucket: Bucket) -> None:
    """One that starts full would let twice the rate through in its first second."""
    slots = await bucket.book(3 * 80, 80, 0)

    assert most_in_a_second(times(slots)) == 80


async def test_campaigns_and_live_together_keep_to_the_rate(bucket: Bucket, redis: Redis) -> None:
    rate, headroom, wanted = 500, 0.2, 1200
    moments: list[float] = []

    async def campaigns() -> None:
        while len(moments) < wanted:
            moments.extend(times(await bucket.book(20, rate, headroom)))

    async def live() -> None:
        while len(moments) < wanted:
            moments.extend(times(await Bucket(redis, NUMBER).live(rate, headroom, 0.06)))

    await asyncio.wait_for(asyncio.gather(campaigns(), live()), BOUND_S)

    assert most_in_a_second(moments) <= rate


async def test_a_pause_books_nothing_for_so_long(bucket: Bucket) -> None:
    await bucket.pause(100)

    refused = await bucket.book(1, 10, 0)
    live = await bucket.live(10, 0.5, 1000)

    for slots in (refused, live):
        assert slots.count == 0
        assert 100 - BOUND_S < slots.wait <= 100


async def test_a_shorter_pause_does_not_cut_a_longer_one(bucket: Bucket) -> None:
    await bucket.pause(100)
    await bucket.pause(1)

    assert (await bucket.book(1, 10, 0)).wait > 100 - BOUND_S


async def test_throttling_pauses_and_lowers_the_pace(bucket: Bucket, redis: Redis) -> None:
    slot = (await bucket.book(1, 100, 0)).redis_first

    assert await bucket.throttle(slot)

    assert await clock(redis, "paused_until") - await clock(redis, "factor_at") == pytest.approx(
        1, abs=1e-5
    )
    await unpause(redis)
    slots = await bucket.book(1, 100, 0)
    elapsed = await now(redis) - await clock(redis, "factor_at")
    assert 0.85 <= slots.pace <= 0.85 + elapsed * 0.005 + 1e-5
    assert slots.spacing == pytest.approx(1.01 / (100 * slots.pace), abs=1e-5)


async def test_what_left_before_the_pace_was_cut_cuts_nothing(bucket: Bucket, redis: Redis) -> None:
    """Slots that were booked before the pause lie up to its end."""
    slots = await bucket.book(2, 100, 0)
    assert await bucket.throttle(slots.redis_first)
    state = await redis.hgetall(KEY)
    end = await clock(redis, "paused_until")

    for slot in (slots.redis_first - 100, slots.redis_first, slots.redis_at(1), end - 0.01):
        assert not await bucket.throttle(slot)
    assert await redis.hgetall(KEY) == state

    assert await bucket.throttle(end + 0.01)
    assert await clock(redis, "factor") < float(state[b"factor"])


async def climbed(bucket: Bucket, redis: Redis, seconds: float) -> float:
    """The pace so long after the last cut."""
    await redis.hset(KEY, "factor_at", repr(await now(redis) - seconds))
    await unpause(redis)
    return (await bucket.book(1, 100_000, 0)).pace


async def test_the_pace_climbs_half_a_percent_of_the_rate_a_second(
    bucket: Bucket, redis: Redis
) -> None:
    await bucket.throttle(await now(redis))
    tolerance = BOUND_S * 0.005

    assert 0.90 - 1e-5 <= await climbed(bucket, redis, 10) < 0.90 + tolerance
    assert await climbed(bucket, redis, 1_000_000) == 1.0


async def test_cuts_multiply_but_never_stop_the_number(bucket: Bucket, redis: Redis) -> None:
    assert await bucket.throttle(await now(redis))
    assert await bucket.throttle(await now(redis) + 2)
    assert await clock(redis, "factor") == pytest.approx(0.85 * 0.85, abs=BOUND_S * 0.005)
    for _ in range(60):
        assert await bucket.throttle(await now(redis) + 2)

    assert await climbed(bucket, redis, 0) >= 0.01


async def test_live_leaves_at_once_and_moves_no_campaign(bucket: Bucket, redis: Redis) -> None:
    await bucket.book(10, 100, 0.2)
    campaign = await clock(redis)

    booked = [await bucket.live(100, 0.2, 0) for _ in range(20)]

    assert [(live.count, live.wait) for live in booked] == [(1, 0.0)] * 20
    assert all(live.redis_first < campaign for live in booked[:10])
    assert await clock(redis) == campaign


async def test_live_beyond_its_share_takes_the_campaigns_next_slot(
    bucket: Bucket, redis: Redis
) -> None:
    await bucket.book(10, 100, 0.2)
    campaign = await clock(redis)
    for _ in range(20):
        await bucket.live(100, 0.2, 0)

    live = await bucket.live(100, 0.2, 1000)

    assert live.count == 1
    assert live.redis_first == pytest.approx(campaign, abs=1e-5)
    assert await clock(redis) - campaign == pytest.approx(1.01 / 80, abs=1e-5)


async def test_live_takes_its_own_next_slot_where_that_comes_first(
    bucket: Bucket, redis: Redis
) -> None:
    first = await bucket.live(100, 0.01, 0)
    await bucket.book(1000, 100, 0.01)
    campaign = await clock(redis)

    live = await bucket.live(100, 0.01, 1000)

    assert live.redis_first == pytest.approx(first.redis_first + 1.01, abs=1e-5)
    assert await clock(redis) == campaign


async def test_live_of_less_than_one_a_second_is_spaced_wider(bucket: Bucket) -> None:
    first = await bucket.live(10, 0.05, 0)
    await bucket.book(100, 10, 0.05)

    live = await bucket.live(10, 0.05, 1000)

    assert live.redis_first == pytest.approx(first.redis_first + 2.02, abs=1e-5)


async def test_a_throttled_number_has_a_smaller_share_for_live_too(
    bucket: Bucket, redis: Redis
) -> None:
    await bucket.throttle(await now(redis))
    await unpause(redis)
    await bucket.book(100, 100, 0.2)

    waits = [(await bucket.live(100, 0.2, 0)).wait for _ in range(20)]

    assert waits[:17] == [0.0] * 17
    assert all(wait > 0 for wait in waits[17:])


async def test_live_from_a_time_to_come_is_forgotten(bucket: Bucket, redis: Redis) -> None:
    """Redis' clock was put back."""
    await redis.rpush(f"{KEY}:live", *[repr(await now(redis) + 500)] * 20)
    await bucket.book(1000, 100, 0.2)

    assert (await bucket.live(100, 0.2, 0)).count == 1


async def test_live_without_headroom_takes_the_campaigns_slots(
    bucket: Bucket, redis: Redis
) -> None:
    await bucket.book(100, 100, 0)
    campaign = await clock(redis)

    live = await bucket.live(100, 0, 1000)

    assert live.redis_first == pytest.approx(campaign, abs=1e-5)
    assert await clock(redis) - campaign == pytest.approx(1.01 / 100, abs=1e-5)


async def test_live_is_refused_when_it_would_wait_too_long(bucket: Bucket, redis: Redis) -> None:
    await bucket.book(40, 10, 0)
    campaign = await clock(redis)

    live = await bucket.live(10, 0, 2)

    assert live.count == 0
    assert live.wait > 2
    assert await clock(redis) == campaign


@pytest.mark.parametrize("absurd", ["1e12", "99999999999", "nonsense", "-5"])
async def test_an_absurd_clock_starts_anew(bucket: Bucket, redis: Redis, absurd: str) -> None:
    await redis.hset(KEY, "campaign", absurd)

    slots = await bucket.book(5, 100, 0)

    assert slots.count == 5
    assert slots.redis_first - await now(redis) < 0.075


async def test_a_forgetful_redis_is_used_as_it_is(bucket: Bucket, redis: Redis) -> None:
    assert (await bucket.book(1, 100, 0)).count == 1
    await redis.flushall()
    assert (await bucket.book(1, 100, 0)).count == 1
    await redis.script_flush()
    await redis.flushall()
    assert (await bucket.book(1, 100, 0)).count == 1
    assert await bucket.throttle(await now(redis) + 1)


async def test_an_idle_number_leaves_no_key_behind(bucket: Bucket, redis: Redis) -> None:
    await bucket.book(1, 100, 0)

    assert 0 < await redis.ttl(KEY) <= 3600


async def test_a_redis_clock_that_was_put_back_neither_stops_nor_frees_the_number(
    bucket: Bucket, redis: Redis
) -> None:
    seconds, _ = await redis.time()
    later = str(seconds + 7200)
    fields = {"factor": "0.5", "factor_at": later, "cut_at": later, "paused_until": later}
    await redis.hset(KEY, mapping=fields)

    slots = await bucket.book(5, 100, 0)

    assert slots.count == 5
    assert slots.pace == 0.5
    assert slots.spacing > 0.02
    assert await bucket.throttle(slots.redis_at(4))
