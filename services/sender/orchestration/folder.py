"""Folds counter deltas, so that counts stay cheap to read."""

from sqlalchemy.ext.asyncio import AsyncEngine

from shared.db.counters import FOLD_SIZE, fold


async def fold_once(engine: AsyncEngine) -> bool:
    """Fold one batch; True when there is probably more."""
    async with engine.begin() as connection:
        return await fold(connection) == FOLD_SIZE
