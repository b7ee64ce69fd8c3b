"""The Redis connection, which holds only what may be lost, and how long it is waited for."""

import time

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

_AGAIN_S = 2.0


def create_redis(redis_url: str) -> Redis:
    """Open a client lazily. It does not retry: a booking that may have happened is not repeated."""
    return Redis.from_url(
        redis_url,
        socket_timeout=2,
        socket_connect_timeout=2,
        retry=Retry(NoBackoff(), 0),
    )


class Patience:
    """Whether this process waits for Redis: once it failed, one at a time does, every two seconds.

    Who waits holds a connection to the database, and there are few of them.
    """

    def __init__(self) -> None:
        self._failed = False
        self._again = 0.0

    def left(self) -> bool:
        """Whether to ask now."""
        now = time.monotonic()
        if now < self._again:
            return False
        if self._failed:
            self._again = now + _AGAIN_S
        return True

    def learn(self, *, answered: bool) -> None:
        """What came of asking."""
        self._failed = not answered
        self._again = 0.0 if answered else time.monotonic() + _AGAIN_S
