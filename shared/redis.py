"""The Redis connection: it holds only what may be lost."""

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff


def create_redis(redis_url: str) -> Redis:
    """Open a client lazily. It does not retry: a booking that may have happened is not repeated."""
    return Redis.from_url(
        redis_url,
        socket_timeout=2,
        socket_connect_timeout=2,
        retry=Retry(NoBackoff(), 0),
    )
