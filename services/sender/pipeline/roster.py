"""What may be sent now: numbers, their running campaigns, rates and weights, in one query."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

# `due_at` is the probe that spares idle numbers both claims and slots, and tells claims where to
# start.
_ROSTER = text("""
SELECT numbers.phone_number_id, numbers.rate, numbers.headroom, numbers.token_name,
    campaigns.id, campaigns.weight, campaigns.endpoint, campaigns.template, campaigns.breaker,
    (
        SELECT due_at FROM messages
        WHERE messages.campaign_id = campaigns.id
          AND due_at >= coalesce(seen.start, '-infinity') AND due_at <= statement_timestamp()
        ORDER BY due_at LIMIT 1
    ) AS due_at
FROM campaigns
JOIN numbers ON numbers.phone_number_id = campaigns.phone_number_id
LEFT JOIN unnest(CAST(:campaigns AS bigint[]), CAST(:starts AS timestamptz[]))
    AS seen (campaign_id, start) ON seen.campaign_id = campaigns.id
WHERE campaigns.state = 'running'
  AND coalesce(campaigns.expires_at > statement_timestamp(), true)
  AND (numbers.state = 'active' OR numbers.paused_until <= statement_timestamp())
  AND NOT EXISTS (SELECT FROM installation WHERE halted)
ORDER BY numbers.phone_number_id, campaigns.id
""")


@dataclass(frozen=True, slots=True)
class CampaignView:
    """A running campaign; `due_at` is the time of its first row that may leave now, if any."""

    id: int
    weight: int
    endpoint: str
    template: dict[str, Any]
    breaker: dict[str, Any] | None
    due_at: datetime | None


@dataclass(frozen=True, slots=True)
class NumberView:
    """A number that may send, at `rate` messages a second less `headroom`."""

    phone_number_id: str
    rate: int
    headroom: float
    token_name: str | None
    campaigns: tuple[CampaignView, ...]


async def read_roster(engine: AsyncEngine, starts: Mapping[int, datetime]) -> list[NumberView]:
    """Read all numbers that may send; `starts` says from which `due_at` on to look for due rows."""
    values = {"campaigns": list(starts), "starts": list(starts.values())}
    async with engine.connect() as connection:
        rows = (await connection.execute(_ROSTER, values)).all()
    return _views(rows)


def _views(rows: Sequence[Any]) -> list[NumberView]:
    campaigns: dict[str, list[CampaignView]] = {}
    for row in rows:
        view = CampaignView(row.id, row.weight, row.endpoint, row.template, row.breaker, row.due_at)
        campaigns.setdefault(row.phone_number_id, []).append(view)
    numbers = {row.phone_number_id: row for row in rows}
    return [
        NumberView(name, row.rate, row.headroom, row.token_name, tuple(campaigns[name]))
        for name, row in numbers.items()
    ]
