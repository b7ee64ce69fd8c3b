"""How long live messages wait for a permit beside campaigns that run flat out.

The bucket's own script in real Valkey, in a time that the test makes: minutes take a second, and
how busy the machine is does not matter.
"""

import heapq
import random
from pathlib import Path
from typing import cast

import pytest
from redis.asyncio import Redis
from test_bucket import most_in_a_second

from services.sender.pipeline import bucket

SCRIPT = Path(bucket.__file__).with_name("bucket.lua").read_text(encoding="utf-8")
IN_OUR_TIME = SCRIPT.replace("redis.call('TIME')", "{ARGV[#ARGV], '0'}")
KEYS = ["headrace:bucket:1", "headrace:bucket:1:live"]
ROUND_TRIP_S = 0.001


async def flat_out(
    redis: Redis, rate: int, headroom: float, live_share: float, seconds: float
) -> tuple[list[float], list[float], list[float]]:
    """Three senders book whatever there is, live messages come by chance.

    Returns the campaigns' slots, those of live messages, and how long the latter had to wait.
    """
    script, chance = redis.register_script(IN_OUR_TIME), random.Random(4)
    block = max(1, int(rate * (1 - headroom) * 0.050))
    campaigns, live, waits = [], [], []
    asking = [(1000.0 + place / 100, place) for place in range(4)]
    while asking[0][0] < 1000 + seconds:
        now, who = heapq.heappop(asking)
        operation = "live" if who == 3 else "book"
        many = 1 if who == 3 else block
        answer = await script(KEYS, [operation, many, rate, headroom, 10, f"{now:.6f}"])
        _, count, ahead, spacing, _ = (float(part) for part in cast("list[bytes]", answer))
        if who == 3:
            assert count == 1
            waits.append(ahead)
            live.append(now + ahead)
            asks = now + chance.expovariate(rate * live_share)
        else:
            campaigns += [now + ahead + place * spacing for place in range(int(count))]
            asks = now + ROUND_TRIP_S + (0 if count else ahead)
        heapq.heappush(asking, (asks, who))
    return campaigns, live, sorted(waits)


@pytest.mark.parametrize(("rate", "seconds"), [(80, 60), (1000, 5)])
async def test_one_in_a_hundred_live_messages_at_most_waits(
    redis: Redis, rate: int, seconds: float
) -> None:
    assert IN_OUR_TIME != SCRIPT
    campaigns, live, waits = await flat_out(redis, rate, 0.2, 0.1, seconds)

    assert len(waits) > rate * 0.1 * seconds * 0.8
    assert waits[int(len(waits) * 0.99)] < 0.1
    assert waits[-1] < 0.2
    assert most_in_a_second(campaigns + live) <= rate
    assert len(campaigns) + len(live) > 0.97 * rate * 0.9 * seconds


@pytest.mark.parametrize("headroom", [0.0, 0.2])
async def test_more_live_messages_than_their_share_push_campaigns_back(
    redis: Redis, headroom: float
) -> None:
    campaigns, live, waits = await flat_out(redis, 80, headroom, 0.5, 20)

    assert most_in_a_second(campaigns + live) <= 80
    assert len(live) > 0.5 * 80 * 20 * 0.8
    assert waits[-1] < 1
