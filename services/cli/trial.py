"""One campaign against the simulator, from its number to the comparison of both sides' books."""

import asyncio
import csv
import io
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from services.cli.comparison import Acceptance, Comparison, Row, Unclear, compare
from services.cli.evidence import Books, Meta, Stats
from services.cli.rest import Rest
from services.cli.stack import Stack

WABA = "102290129340398"
TEMPLATE = {
    "name": "demo_greeting",
    "language": "en",
    "components": [
        {"type": "body", "parameters": [{"type": "text", "text": "{{name}}"}]},
    ],
}
LOOK_SECONDS = 0.25
Seen = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both sides' books at the end, and how they compare.

    `counts` and `met` are what the API says: rows per status, and how often each code was met.
    """

    comparison: Comparison
    counts: Mapping[str, int]
    met: Mapping[str, int]
    rows: list[Row]
    ledger: list[Acceptance]
    unclear: list[Unclear]
    stats: Stats

    @property
    def statuses(self) -> dict[str, int]:
        """Rows per status: the API's counts are exact, or they are wrong."""
        return dict(Counter(row.status.value for row in self.rows))


class Trial:
    """A campaign on a number of its own. `campaign` is its public id."""

    def __init__(self, rest: Rest, meta: Meta, books: Books, campaign: str) -> None:
        self.rest = rest
        self.meta = meta
        self.books = books
        self.campaign = campaign

    async def upload(self, file: Path) -> Mapping[str, Any]:
        told: Mapping[str, Any] = await self.rest.upload(self.campaign, file)
        return told

    async def rejects(self) -> Counter[str]:
        """How many rows of the uploads were refused, by reason."""
        told = await self.rest.text(f"/v1/campaigns/{self.campaign}/rejects")
        return Counter(row["reason"] for row in csv.DictReader(io.StringIO(told, newline="")))

    async def look(self) -> Mapping[str, Any]:
        told: Mapping[str, Any] = await self.rest.get(f"/v1/campaigns/{self.campaign}")
        return told

    async def start(self) -> None:
        await self.rest.post(f"/v1/campaigns/{self.campaign}/start")

    async def settle(self, seconds: float, seen: Seen = lambda _: None) -> bool:
        """Wait until nothing moves any more; False when that takes longer than so many seconds.

        Twice quiet in a row: what was applied last may have made a row pending again.
        """
        end, quiet = time.monotonic() + seconds, 0
        while quiet < 2:
            if time.monotonic() > end:
                return False
            await asyncio.sleep(LOOK_SECONDS)
            told = await self.look()
            seen(told)
            quiet = quiet + 1 if await self._is_quiet(told["counts"]) else 0
        return True

    async def _is_quiet(self, counts: Mapping[str, int]) -> bool:
        """In this order: what has left the first place can be found in the second."""
        if counts.get("pending", 0) + counts.get("claimed", 0):
            return False
        if (await self.meta.stats()).outstanding:
            return False
        return not await self.books.unapplied()

    async def compare(self, excuses: Collection[int] = ()) -> Outcome:
        rows = await self.books.rows(self.campaign)
        ledger, unclear = await self.meta.ledger(), await self.meta.unclear()
        told = (await self.look())["counts"]
        errors = (await self.rest.get(f"/v1/campaigns/{self.campaign}/errors"))["data"]
        counts = {name: count for name, count in told.items() if count and name != "total"}
        return Outcome(
            compare(rows, ledger, unclear, excuses),
            counts,
            {str(error["code"]): error["met"] for error in errors},
            rows,
            ledger,
            unclear,
            await self.meta.stats(),
        )


@asynccontextmanager
async def open_trial(stack: Stack, number: str, rate: int, name: str) -> AsyncGenerator[Trial]:
    """Register a number without headroom and draft a campaign on it."""
    async with (
        Rest.open(stack.sender.url, stack.secrets.admin_key) as rest,
        httpx.AsyncClient(base_url=stack.simulator.url, timeout=30, trust_env=False) as client,
        _connection(stack.database_url) as connection,
    ):
        settings = {"waba_id": WABA, "rate": rate, "headroom": 0}
        await rest.put(f"/v1/phone-numbers/{number}", settings)
        draft = {"name": name, "phone_number_id": number, "template": TEMPLATE}
        campaign = await rest.post("/v1/campaigns", draft)
        yield Trial(rest, Meta(client, number), Books(connection), campaign["id"])


@asynccontextmanager
async def _connection(url: str) -> AsyncGenerator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(url, statement_cache_size=0)  # it may be a pooler
    try:
        yield connection
    finally:
        await connection.close()
