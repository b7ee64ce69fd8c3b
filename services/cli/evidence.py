"""Reads both sides of the comparison: rows from Postgres, the ledger from the simulator."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import msgspec

from services.cli.comparison import Acceptance, Row, Unclear
from shared.domain.status import Status
from shared.domain.tokens import Token

_ROWS = """
    SELECT m.id, m.attempt, m.status::text, m.error_code, m.reason, m.wamid
    FROM messages m JOIN campaigns c ON c.id = m.campaign_id WHERE c.public_id = $1 ORDER BY m.id
"""
# Set-aside events are tried again, so they are work to do as well.
_INBOX = """
    SELECT (SELECT count(*) FROM webhook_pending) +
           (SELECT count(*) FROM webhook_events WHERE state = 'parked')
"""
_decode = msgspec.json.Decoder().decode


class Books:
    """What Headrace itself has written."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection

    async def rows(self, campaign: str) -> list[Row]:
        found = await self._connection.fetch(_ROWS, UUID(campaign))
        return [Row(r[0], r[1], Status(r[2]), r[3], r[4], r[5]) for r in found]

    async def unapplied(self) -> int:
        """Webhooks that were stored and wait to be applied."""
        return int(await self._connection.fetchval(_INBOX))


@dataclass(frozen=True, slots=True)
class Stats:
    """The simulator's counts; the peak is of one number."""

    refused: Mapping[str, int]
    outstanding: int
    peak: int


class Meta:
    """The simulator's own view of what happened, for one business number."""

    def __init__(self, client: httpx.AsyncClient, phone_number_id: str) -> None:
        self._client = client
        self._number = phone_number_id

    async def play(self, scenario: Mapping[str, Any]) -> None:
        answer = await self._client.put("/_sim/scenario", json=scenario)
        answer.raise_for_status()

    async def stats(self) -> Stats:
        answer = await self._client.get("/_sim/stats")
        told = answer.raise_for_status().json()
        peak = told["most_accepted_in_one_second"].get(self._number, 0)
        return Stats(told["refused"], told["webhooks"]["outstanding"], peak)

    async def ledger(self) -> list[Acceptance]:
        return [
            _acceptance(line)
            async for line in self._lines("/_sim/ledger")
            if line["phone_number_id"] == self._number
        ]

    async def unclear(self) -> list[Unclear]:
        return [
            Unclear(Token.parse(line["token"]), line["kind"], line["accepted"], line["withheld"])
            async for line in self._lines("/_sim/ambiguous")
        ]

    async def _lines(self, path: str) -> AsyncIterator[dict[str, Any]]:
        async with self._client.stream("GET", path) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                yield _decode(line)


def errors_told(stats: Stats, ledger: list[Acceptance], unclear: list[Unclear]) -> dict[str, int]:
    """How often Meta told of each error: refusals and failures by code, unclear replies by kind."""
    told = Counter(stats.refused)
    told.update(str(item.failed_reported) for item in ledger if item.failed_reported is not None)
    told.update(item.kind for item in unclear)
    return dict(sorted(told.items()))


def _acceptance(line: Mapping[str, Any]) -> Acceptance:
    return Acceptance(
        token=Token.parse(line["token"]),
        to=line["to"],
        wamid=line["wamid"],
        at=line["at"],
        withheld=line["withheld"],
        acknowledged=tuple(Status(name) for name in line["acknowledged"]),
        failed_reported=line["failed_reported"],
    )
