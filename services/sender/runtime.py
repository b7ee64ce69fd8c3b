"""What a sender process holds open, built once and handed down."""

from dataclasses import dataclass, field

from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncEngine

from services.sender.settings import SenderSettings
from shared.redis import Patience


@dataclass(frozen=True, slots=True)
class Runtime:
    """Routes reach it as `request.state.runtime`; loops get what they need of it as arguments."""

    settings: SenderSettings
    engine: AsyncEngine
    redis: Redis
    patience: Patience = field(default_factory=Patience)
