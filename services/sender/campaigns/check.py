"""What a campaign's start would meet: what refuses or spoils it, and how long it takes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.campaigns.left_out import left_out
from services.sender.campaigns.lifecycle import Campaign
from services.sender.campaigns.pace import Work, campaign_rate, left_after, seconds_until_sent
from services.sender.campaigns.readiness import Finding, TokenFor, start_problems
from services.sender.campaigns.spoilers import Outlook, Seen, spoilers
from shared.db.counters import pending, totals
from shared.domain.campaigns import ENDED, CampaignState
from shared.domain.status import Status

# Nothing of an upload is taken that fails, or whose process dies.
_SEEN = text("""
SELECT now() AS now, n.rate, n.headroom, (SELECT halted FROM installation) AS halted,
    n.state = 'paused' AND coalesce(n.paused_until > now(), true) AS number_paused,
    n.paused_reason, n.paused_until, heard.received_at AS webhooks_seen_at,
    coalesce((SELECT invalid FROM uploads WHERE campaign_id = :campaign AND state = 'done'
              ORDER BY id DESC LIMIT 1), 0) AS refused,
    coalesce((SELECT state = 'failed' OR state = 'running'
                     AND heartbeat_at < now() - interval '2 minutes'
              FROM uploads WHERE campaign_id = :campaign ORDER BY id DESC LIMIT 1),
             false) AS upload_failed
FROM numbers n LEFT JOIN webhook_heartbeats heard USING (phone_number_id)
WHERE n.phone_number_id = :number
""")

_BESIDE = text("""
SELECT id, weight FROM campaigns
WHERE phone_number_id = :number AND state = 'running' AND id <> :campaign
  AND coalesce(expires_at > now(), true)
""")


@dataclass(frozen=True, slots=True)
class Check:
    """`problems` refuse the start; `warnings` spoil what comes after it.

    `seconds` and `ends_at`: until the last one has left, if it starts now or at its time. `rate` is
    what all campaigns of the number may use, a second. Of more than 10,000 people, `opted_out` and
    `not_allowed` may be projected from an even sample.
    """

    ready: bool
    problems: list[Finding]
    warnings: list[Finding]
    people: int
    opted_out: int
    not_allowed: int
    rate: float
    seconds: int
    ends_at: datetime | None
    webhooks_seen_at: datetime | None


async def check(
    connection: AsyncConnection,
    campaign: Campaign,
    token_for: TokenFor,
    allowed: Sequence[str] | None,
) -> Check:
    """What its start would meet, by hand for a draft, by the scheduler for a scheduled one."""
    states = (CampaignState.DRAFT, CampaignState.SCHEDULED)
    problems = await start_problems(connection, campaign, states, token_for)
    return await survey(connection, campaign, problems, allowed)


async def survey(
    connection: AsyncConnection,
    campaign: Campaign,
    problems: Sequence[Finding],
    allowed: Sequence[str] | None,
) -> Check:
    """Everything beside the problems, for a start now or at its time."""
    values = {"campaign": campaign.id, "number": campaign.phone_number_id}
    seen = Seen(**(await connection.execute(_SEEN, values)).mappings().one())
    counts = await totals(connection, campaign.id)
    people = sum(counts.values())
    begin = max(seen.now, campaign.start_at or seen.now)
    waiting = 0 if campaign.state in ENDED else counts[Status.PENDING]
    rate, seconds = await _duration(connection, campaign, seen, begin, waiting)
    ends_at = begin + timedelta(seconds=seconds) if waiting else None
    skipped = await left_out(connection, campaign.id, people, allowed)
    outlook = Outlook(
        begins_at=begin,
        ends_at=ends_at,
        closes=campaign.started_at is None and not campaign.keep_open,
        left_out=skipped,
    )
    return Check(
        ready=not problems,
        problems=list(problems),
        warnings=[] if campaign.state in ENDED else spoilers(campaign, seen, outlook),
        people=people,
        opted_out=skipped.opted_out,
        not_allowed=skipped.not_allowed,
        rate=round(rate, 2),
        seconds=seconds,
        ends_at=ends_at,
        webhooks_seen_at=seen.webhooks_seen_at,
    )


async def _duration(
    connection: AsyncConnection, campaign: Campaign, seen: Seen, begin: datetime, waiting: int
) -> tuple[float, int]:
    """The rate, and whole seconds. People who are skipped take their turn like the others."""
    rate = campaign_rate(seen.rate, seen.headroom)
    lead = (begin - seen.now).total_seconds()
    others = left_after(lead, await _beside(connection, campaign), rate)
    return rate, math.ceil(seconds_until_sent(Work(waiting, campaign.weight), others, rate))


async def _beside(connection: AsyncConnection, campaign: Campaign) -> list[Work]:
    """What the number's other campaigns still have to send."""
    values = {"campaign": campaign.id, "number": campaign.phone_number_id}
    weights = {row.id: row.weight for row in await connection.execute(_BESIDE, values)}
    waiting = await pending(connection, weights)
    return [Work(waiting[one], weight) for one, weight in weights.items()]
