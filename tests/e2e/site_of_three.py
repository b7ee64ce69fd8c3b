"""Three senders and two ingests as processes, each with a way to its peers that can be cut."""

import asyncio
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
from relay import Relay, relaying
from waiting import until

from services.cli.embedded import EmbeddedServers
from services.cli.processes import ServiceProcess
from services.cli.stack import Stack

SENDERS, INGESTS = 3, 2
LEASE_SECONDS = 4
# A lease must outlive twice the longest send.
TUNING = {
    "HEADRACE_CONNECT_TIMEOUT_S": "0.5",
    "HEADRACE_READ_TIMEOUT_S": "1.5",
    "HEADRACE_LEASE_S": str(LEASE_SECONDS),
}
AWAY = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)

_CLAIMED = "SELECT id, attempt FROM messages WHERE status = 'claimed'"
_IN_LEASE = """
    SELECT count(*) FROM messages JOIN unnest($1::bigint[], $2::int[]) AS held (id, attempt)
        USING (id, attempt)
    WHERE status = 'claimed' AND claimed_at > clock_timestamp() - make_interval(secs => $3)
"""
_DONE = """
    SELECT count(*) FILTER (WHERE status NOT IN ('pending', 'claimed'))::float8 / count(*)
    FROM messages JOIN campaigns ON campaigns.id = campaign_id WHERE public_id = ANY($1::uuid[])
"""
# One statement is one snapshot.
_DISAGREEMENTS = """
    WITH by_rows AS (
        SELECT campaign_id, status, coalesce(error_code, 0) AS code, count(*) AS many
        FROM messages GROUP BY 1, 2, 3
    ), by_counters AS (
        SELECT campaign_id, status, error_code AS code, sum(entered - departed) AS many FROM (
            SELECT campaign_id, status, error_code, entered, departed FROM campaign_counters
            UNION ALL
            SELECT campaign_id, status, error_code, entered, departed FROM counter_deltas
        ) AS parts GROUP BY 1, 2, 3 HAVING sum(entered - departed) <> 0
    )
    SELECT campaign_id, status, code, r.many AS rows, c.many AS counters
    FROM by_rows AS r FULL JOIN by_counters AS c USING (campaign_id, status, code)
    WHERE r.many IS DISTINCT FROM c.many
"""
_WERE_UNKNOWN = "SELECT DISTINCT message_id FROM attempts WHERE outcome = 'unknown'"
Held = frozenset[tuple[int, int]]


class Eye:
    """Looks into the database, and waits while it is away."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    async def fetch(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        found = await until(lambda: self._try(statement, *values), 30, is_right=_is_there)
        assert found is not None
        return found

    async def _try(self, statement: str, *values: Any) -> list[asyncpg.Record] | None:
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await asyncpg.connect(self._url, timeout=5)
            return await self._connection.fetch(statement, *values)
        except AWAY:
            self._connection = None
            return None

    async def claimed(self) -> Held:
        """Rows that a process holds, each with its attempt."""
        return frozenset((row[0], row[1]) for row in await self.fetch(_CLAIMED))

    async def in_lease(self, held: Held) -> int:
        """How many of these are still claimed, and not yet for as long as the lease."""
        ids, attempts = [one[0] for one in held], [one[1] for one in held]
        return int((await self.fetch(_IN_LEASE, ids, attempts, float(LEASE_SECONDS)))[0][0])

    async def done(self, campaigns: Sequence[str]) -> float:
        """The share of these campaigns' rows that have been sent, or will not be."""
        return float((await self.fetch(_DONE, [UUID(one) for one in campaigns]))[0][0])

    async def disagreements(self) -> list[tuple[Any, ...]]:
        """Where the counters are not those of the rows."""
        return [tuple(row) for row in await self.fetch(_DISAGREEMENTS)]

    async def were_unknown(self) -> set[int]:
        """Rows with an attempt that ended unknown."""
        return {row[0] for row in await self.fetch(_WERE_UNKNOWN)}

    async def close(self) -> None:
        if self._connection:
            await self._connection.close()


def _is_there(found: Collection[Any] | None) -> bool:
    return found is not None


class Site:
    """`gates` are the senders' ways to Meta, `door` is Meta's way to the ingests."""

    def __init__(
        self, stack: Stack, servers: EmbeddedServers, gates: Sequence[Relay], door: Relay
    ) -> None:
        self.stack = stack
        self.servers = servers
        self.gates = gates
        self.door = door
        self._starting: dict[ServiceProcess, asyncio.Task[None]] = {}
        self.senders = [stack.sender]
        self.ingests = [stack.ingest]
        for gate in gates:
            gate.ports[0] = stack.simulator.port
        for place in range(1, SENDERS):
            self.senders.append(self._sender(place))
        for _ in range(1, INGESTS):
            self.ingests.append(stack.start_ingest(wait=False))
        for place, ingest in enumerate(self.ingests):
            door.ports[place] = ingest.port

    @property
    def webhook_url(self) -> str:
        return f"{self.door.url}/webhooks/whatsapp"

    @property
    def on_the_wire(self) -> int:
        """Requests to Meta that have no reply yet."""
        return sum(gate.open() for gate in self.gates)

    def restart_sender(self, place: int) -> None:
        """On the port it had."""
        self.senders[place] = self._sender(place, self.senders[place].port)
        self._await(self.senders[place])

    def restart_ingest(self, place: int) -> None:
        port = self.ingests[place].port
        self.ingests[place] = self.stack.start_ingest(port, wait=False)
        self._await(self.ingests[place])

    def _sender(self, place: int, port: int = 0) -> ServiceProcess:
        way = {"HEADRACE_GRAPH_URL": self.gates[place].url}
        return self.stack.start_sender(port, way, wait=False)

    def _await(self, process: ServiceProcess) -> None:
        starting = asyncio.to_thread(process.wait_ready)
        self._starting[process] = asyncio.create_task(starting)

    async def ready(self) -> None:
        """Wait until every process is."""
        for one in {*self.senders, *self.ingests} - self._starting.keys():
            self._await(one)
        await asyncio.gather(*self._starting.values())

    def running(self, processes: Sequence[ServiceProcess]) -> list[int]:
        """The places of those that have started."""
        return [place for place, one in enumerate(processes) if self._starting[one].done()]


@contextmanager
def sited(folder: Path) -> Generator[Site]:
    """All processes, started but not yet waited for. In the main thread (`leash`)."""
    with relaying() as relays:
        gates = [relays.add() for _ in range(SENDERS)]
        tuning = {**TUNING, "HEADRACE_GRAPH_URL": gates[0].url}
        servers = EmbeddedServers(durable=True)
        with Stack(folder, tuning, servers) as stack:
            yield Site(stack, servers, gates, relays.add(INGESTS))
