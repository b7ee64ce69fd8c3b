"""What a storm does to the processes and servers, each at an instant when something is open."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import asyncpg
from redis.asyncio import Redis
from relay import Relay
from site_of_three import AWAY, Eye, Held, Site
from waiting import until

from services.cli.processes import ServiceProcess
from shared.domain.tokens import Token

# Postgres keeps some of its 200 for superusers, and everybody is one here.
ALL_CONNECTIONS = 200
# A webhook is answered after some milliseconds, a send after some hundred.
WEBHOOK_SECONDS, SEND_SECONDS = 0.004, 0.1
_CUT_OFF = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE application_name = 'headrace'
"""
_READ_ONLY = "ALTER SYSTEM SET default_transaction_read_only = {}"


@dataclass(frozen=True)
class Struck:
    """One fault: whom it met, and how many requests were open there at that instant."""

    kind: str
    whom: str
    open: int


@dataclass
class Frozen:
    """A sender that stood still: what was claimed then must not leave through its gate later."""

    gate: Relay
    held: Held
    until: float

    def sent_later(self) -> Held:
        late = {token for at, token in self.gate.tokens if at >= self.until}
        tokens = [Token.parse(one) for one in late]
        return self.held & {(one.message_id, one.attempt) for one in tokens if one}


@dataclass
class Faults:
    """Strikes; `in_doubt` are the rows that were claimed at any of the strikes."""

    site: Site
    eye: Eye
    dice: random.Random
    in_doubt: set[int] = field(default_factory=set)
    frozen: list[Frozen] = field(default_factory=list)

    async def strike(self, kind: str) -> Struck:
        self._doubt(await self.eye.claimed())
        whom, met = await KINDS[kind](self)
        self._doubt(await self.eye.claimed())
        return Struck(kind, whom, met)

    def _doubt(self, claimed: Held) -> None:
        self.in_doubt |= {row for row, _ in claimed}

    async def _one_of(self, processes: Sequence[ServiceProcess]) -> int:
        """The place of any of those that are up; the others are on their way back."""
        return self.dice.choice(await until(lambda: self.site.running(processes), 30))

    async def kill_sender(self) -> tuple[str, int]:
        place = await self._one_of(self.site.senders)
        process = self.site.senders[place]
        met = await self._signal(self.site.gates[place], 0, process, signal.SIGKILL)
        process.kill()
        self.site.restart_sender(place)
        return f"sender {place + 1}", met

    async def kill_ingest(self) -> tuple[str, int]:
        place = await self._one_of(self.site.ingests)
        process = self.site.ingests[place]
        met = await self._signal(self.site.door, place, process, signal.SIGKILL)
        process.kill()
        self.site.restart_ingest(place)
        return f"ingest {place + 1}", met

    async def freeze_sender(self) -> tuple[str, int]:
        """Past the lease of everything it holds."""
        place = await self._one_of(self.site.senders)
        gate, process = self.site.gates[place], self.site.senders[place]
        met = await self._signal(gate, 0, process, signal.SIGSTOP)
        held: Held = frozenset()
        try:
            held = await self.eye.claimed()
            self._doubt(held)
            await until(lambda: self.eye.in_lease(held), 30, is_right=_none)
        finally:
            self.frozen.append(Frozen(gate, held, time.monotonic()))
            os.kill(process.pid, signal.SIGCONT)
        return f"sender {place + 1}", met

    async def freeze_ingest(self) -> tuple[str, int]:
        """Until Meta has given up waiting for an answer."""
        place, door = await self._one_of(self.site.ingests), self.site.door
        process, given_up = self.site.ingests[place], door.cut_off[place]
        met = await self._signal(door, place, process, signal.SIGSTOP)
        try:
            await until(lambda: door.cut_off[place] > given_up, 30)
        finally:
            os.kill(process.pid, signal.SIGCONT)
        return f"ingest {place + 1}", met

    async def _signal(
        self, relay: Relay, target: int, process: ServiceProcess, number: signal.Signals
    ) -> int:
        """At an instant when it owes, or awaits, a reply; how many."""
        longest = WEBHOOK_SECONDS if relay is self.site.door else SEND_SECONDS
        delay = self.dice.uniform(0, longest)
        return await relay.trap(target, delay, partial(os.kill, process.pid, number))

    async def kill_postgres(self) -> tuple[str, int]:
        servers = self.site.servers
        await until(lambda: self.site.on_the_wire)
        met = self.site.on_the_wire + self.site.door.open()
        servers.kill_postgres()
        servers.start_postgres()
        return "Postgres", met

    async def kill_valkey(self) -> tuple[str, int]:
        """It keeps nothing, so it comes back empty; nothing leaves meanwhile."""
        servers = self.site.servers
        await until(lambda: self.site.on_the_wire)
        met = self.site.on_the_wire
        servers.kill_valkey()
        try:
            await until(lambda: self.site.on_the_wire, is_right=_none)
        finally:
            servers.start_valkey()
        return "Valkey", met

    async def empty_valkey(self) -> tuple[str, int]:
        await until(lambda: self.site.on_the_wire)
        met = self.site.on_the_wire
        async with Redis.from_url(self.site.servers.redis_url) as redis:
            await redis.flushall()
            await redis.script_flush()
        return "Valkey", met

    async def cut_the_way_to_meta(self) -> tuple[str, int]:
        place = await self._one_of(self.site.senders)
        gate = self.site.gates[place]
        await until(gate.open)
        return f"sender {place + 1}", gate.cut(0.5, self.dice)

    async def cut_the_way_from_meta(self) -> tuple[str, int]:
        await until(self.site.door.open)
        return "ingests", self.site.door.cut(1, self.dice)

    async def cut_the_way_to_postgres(self) -> tuple[str, int]:
        await until(lambda: self.site.on_the_wire)
        met = self.site.on_the_wire + self.site.door.open()
        await self.eye.fetch(_CUT_OFF)
        return "all", met

    async def make_postgres_read_only(self) -> tuple[str, int]:
        """Until nothing is on the wire any more: nothing can be claimed."""
        await until(lambda: self.site.on_the_wire)
        met = self.site.on_the_wire + self.site.door.open()
        await self._set_read_only("on")
        try:
            await until(lambda: self.site.on_the_wire, is_right=_none)
        finally:
            await self._set_read_only("off")
        return "Postgres", met

    async def _set_read_only(self, word: str) -> None:
        await self.eye.fetch(_READ_ONLY.format(word))
        await self.eye.fetch("SELECT pg_reload_conf()")

    async def take_all_connections(self) -> tuple[str, int]:
        """Until nothing is on the wire any more."""
        await until(lambda: self.site.on_the_wire)
        met = self.site.on_the_wire + self.site.door.open()
        taken: list[asyncpg.Connection[asyncpg.Record]] = []
        try:
            await until(lambda: self._took_all(taken), 30)
            await until(lambda: self.site.on_the_wire, is_right=_none)
        finally:
            await asyncio.gather(*(connection.close() for connection in taken))
        return "Postgres", met

    async def _took_all(self, taken: list["asyncpg.Connection[asyncpg.Record]"]) -> bool:
        """Cut everybody off and be faster than they are."""
        url = self.site.stack.database_url
        await self.eye.fetch(_CUT_OFF)
        with suppress(AWAY):
            while len(taken) < ALL_CONNECTIONS:
                taken.append(await asyncpg.connect(url, timeout=5))
        found = await self.eye.fetch(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'headrace'"
        )
        return not found[0][0]


KINDS: dict[str, Callable[[Faults], Awaitable[tuple[str, int]]]] = {
    "killed sender": Faults.kill_sender,
    "killed ingest": Faults.kill_ingest,
    "frozen sender": Faults.freeze_sender,
    "frozen ingest": Faults.freeze_ingest,
    "killed Postgres": Faults.kill_postgres,
    "killed Valkey": Faults.kill_valkey,
    "emptied Valkey": Faults.empty_valkey,
    "cut way to Meta": Faults.cut_the_way_to_meta,
    "cut way from Meta": Faults.cut_the_way_from_meta,
    "cut way to Postgres": Faults.cut_the_way_to_postgres,
    "read-only Postgres": Faults.make_postgres_read_only,
    "no connections left": Faults.take_all_connections,
}


def _none(count: int) -> bool:
    return count == 0
