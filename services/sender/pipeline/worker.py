"""What happens to a number's messages: permits ► claim ► slot ► send ► classify ► record."""

import asyncio
import time
from dataclasses import dataclass

from redis.exceptions import RedisError

from services.sender.pipeline.attempt import Route
from services.sender.pipeline.bucket import Bucket, Slots
from services.sender.pipeline.claim import ClaimedMessage
from services.sender.pipeline.desk import Desk
from services.sender.pipeline.lag import LATE_S, Lag
from services.sender.pipeline.sending import Sending

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
        self._prepared = 0
        self._lag = Lag()

    async def prepare(self) -> bool:
        """Book slots for as many messages as may leave and are expected; claim as many."""
        room = self._sending.room() - self._prepared
        permits = min(room, self._desk.block_size(_BLOCK_S))
        if permits < 1 or not self._desk.expects_rows:
            await self._rest(_BLOCK_S if self._desk.expects_rows else _IDLE_S)
            return True
        try:
            slots = await self._bucket.book(permits, self._desk.rate, self._desk.headroom)
        except RedisError:
            self._give_back_kept("no_permits")
            raise
        self._desk.note(slots)
        if slots.count:
            await self._put(Block(slots, await self._desk.claim(slots.count)))
        elif slots.wait > _IDLE_S:
            await self._rest(_IDLE_S)
        else:
            await asyncio.sleep(slots.wait)
        return True

    async def _put(self, block: Block) -> None:
        self._prepared += len(block.messages)
        await self._blocks.put(block)

    async def _rest(self, seconds: float) -> None:
        """Nothing may leave for now: nothing stays claimed for it."""
        self._give_back_kept("no_permits")
        await self._desk.wait(seconds)

    def _give_back_kept(self, why: str) -> None:
        for message in self._desk.take_kept():
            self._sending.give_back(message, why)

    async def release(self) -> bool:
        """Let one block leave, each message at its slot."""
        block = await self._blocks.get()
        waiting = len(block.messages)
        try:
            for place, message in enumerate(block.messages):
                slot = block.slots.at(place)
                await _until(slot + self._lag.at(slot))
                waiting, self._prepared = waiting - 1, self._prepared - 1
                self._leave(message, slot, block.slots.redis_at(place))
        finally:
            self._prepared -= waiting
            self._blocks.task_done()
        return True

    def _leave(self, message: ClaimedMessage, slot: float, redis_slot: float) -> None:
        """Send; hand back what may not leave any more; keep what missed its slot."""
        route = self._desk.route(message)
        late = self._lag.grow(slot, time.monotonic())
        if self._sending.holds(message.campaign_id):
            self._sending.give_back(message, "held")
        elif not isinstance(route, Route):
            self._sending.give_back(message, route)
        elif late > LATE_S:
            self._desk.keep_for_next(message)
        else:
            self._sending.start(route, message, redis_slot)

    async def drain(self, seconds: float) -> int:
        """After `prepare` has stopped: hand back what did not leave, finish what is on the wire.

        Returns how many sends had to be cut off; they are recorded as unknown.
        """
        await self._blocks.join()
        self._give_back_kept("draining")
        return await self._sending.drain(seconds)


async def _until(moment: float) -> None:
    wait = moment - time.monotonic()
    if wait > 0.001:
        await asyncio.sleep(wait)
