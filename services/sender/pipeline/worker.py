"""What happens to a number's messages: permits ► claim ► slot ► send ► classify ► record."""

import asyncio
import time
from dataclasses import dataclass

from services.sender.pipeline.attempt import Route
from services.sender.pipeline.bucket import Bucket, Slots
from services.sender.pipeline.claim import ClaimedMessage
from services.sender.pipeline.desk import Desk
from services.sender.pipeline.sending import Sending

# A slot is used within this time or is void. The spacing of 1.01/rate leaves a hundredth of a
# second per second: a later burst would put more than the rate into the second after it.
_LATE_S = 0.010
_BLOCK_S = 0.050
_IDLE_S = 0.5


@dataclass(frozen=True, slots=True)
class Block:
    """Booked slots and the claimed messages that leave at them."""

    slots: Slots
    messages: list[ClaimedMessage]


class Worker:
    """One business number in this process. Books one block ahead of the one that is leaving."""

    def __init__(self, bucket: Bucket, desk: Desk, sending: Sending) -> None:
        self._bucket = bucket
        self._desk = desk
        self._sending = sending
        self._blocks: asyncio.Queue[Block] = asyncio.Queue(1)

    async def prepare(self) -> bool:
        """Book slots for as many messages as may leave and are expected; claim as many."""
        permits = min(self._sending.room(), self._desk.block_size(_BLOCK_S))
        if permits < 1 or not self._desk.expects_rows:
            await self._desk.wait(_BLOCK_S if permits < 1 else _IDLE_S)
            return True
        slots = await self._bucket.book(permits, self._desk.rate, self._desk.headroom)
        self._desk.note(slots)
        if slots.count:
            await self._blocks.put(Block(slots, await self._desk.claim(slots.count)))
        else:
            await asyncio.sleep(min(slots.wait, _IDLE_S))
        return True

    async def release(self) -> bool:
        """Let one block leave, each message at its slot."""
        block = await self._blocks.get()
        try:
            for place, message in enumerate(block.messages):
                await _until(block.slots.at(place))
                self._leave(message, block.slots.at(place), block.slots.redis_at(place))
        finally:
            self._blocks.task_done()
        return True

    def _leave(self, message: ClaimedMessage, slot: float, redis_slot: float) -> None:
        """Send; hand back what may not leave any more; keep what missed its slot."""
        route = self._desk.route(message)
        if self._sending.held:
            self._sending.give_back(message, "held")
        elif not isinstance(route, Route):
            self._sending.give_back(message, route)
        elif time.monotonic() - slot > _LATE_S:
            self._desk.keep_for_next(message)
        else:
            self._sending.start(route, message, redis_slot)

    async def drain(self, seconds: float) -> int:
        """After `prepare` has stopped: hand back what did not leave, finish what is on the wire.

        Returns how many sends had to be cut off; they are recorded as unknown.
        """
        await self._blocks.join()
        for message in self._desk.take_kept():
            self._sending.give_back(message, "draining")
        return await self._sending.drain(seconds)


async def _until(moment: float) -> None:
    wait = moment - time.monotonic()
    if wait > 0.001:
        await asyncio.sleep(wait)
