"""What an operator decides of rows that have ended: sent again, or unknown for good.

Both go through a campaign in steps, in the order of ids, each step one short transaction: a step
that goes on after the one before meets no row twice, however fast it fails again.
"""

from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.campaigns.lifecycle import Campaign, CampaignRefused
from services.sender.campaigns.order import FOLLOWING
from shared.db.campaigns import add_event, keep_running
from shared.db.counters import DELTAS
from shared.db.notices import WAKE
from shared.domain.campaigns import CampaignState
from shared.domain.status import Status

#: Rows that one step moves, and rows that it looks at: its time, whatever it finds.
MOST: Final = 5000
SCAN: Final = 50_000

_FIND = """
WITH scanned AS MATERIALIZED ({scanned} LIMIT :scan), found AS (
    SELECT id FROM scanned WHERE status = CAST(:status AS message_status)
      AND (CAST(:settled AS boolean) OR reason IS DISTINCT FROM 'settled') ORDER BY id LIMIT :most
)
SELECT count(*) AS seen, max(id) AS last,
    ARRAY(SELECT id FROM found ORDER BY id) AS ids
FROM scanned
"""

_ANY_CODE = text(_FIND.format(scanned=f"SELECT id, status, reason FROM messages WHERE {FOLLOWING}"))

# Code by code, as the index has them.
_WITH_CODES = text(
    _FIND.format(
        scanned="""
    SELECT met.id, met.status, met.reason FROM unnest(CAST(:codes AS integer[])) AS wanted (code)
    CROSS JOIN LATERAL (
        SELECT id, status, reason FROM messages
        WHERE error_code IS NOT NULL
            AND (campaign_id, error_code, id) > (:campaign, wanted.code, :after)
            AND (campaign_id, error_code) <= (:campaign, wanted.code)
        ORDER BY campaign_id, error_code, id LIMIT :scan
    ) AS met ORDER BY met.id"""
    )
)

# An unknown attempt that is left behind is marked so: late evidence of it then cancels what is to
# be sent again. What else the history knows of an attempt stays.
_HISTORY = """
history AS (
    INSERT INTO attempts AS a (message_id, attempt, outcome, wamid, error_code, details)
    SELECT id, attempt, status::text, wamid, error_code, reason FROM old ORDER BY id
    ON CONFLICT (message_id, attempt) DO UPDATE SET
        outcome = CASE excluded.outcome WHEN 'unknown' THEN 'unknown' ELSE a.outcome END,
        wamid = coalesce(a.wamid, excluded.wamid)
)
"""

_LOCKED = """
SELECT id, status, attempt, wamid, error_code, reason FROM messages
WHERE id = ANY(CAST(:ids AS bigint[])) AND status = CAST(:status AS message_status)
"""

_CHANGED = """
messages.campaign_id, old.status AS old_status, old.error_code AS old_code,
messages.status AS new_status, messages.error_code AS new_code
"""

# Each row is due a microsecond after the one before, as after an upload: a claim's watermark relies
# on it. The operator's word gives a new budget: what was spent is in the history.
_RETRY = text(f"""
WITH locked AS MATERIALIZED (
    {_LOCKED} AND EXISTS (
        SELECT FROM campaigns WHERE campaigns.id = :campaign AND state IN ('running', 'paused')
          AND coalesce(expires_at > now(), true)
    )
    ORDER BY id FOR UPDATE
), old AS (
    SELECT *, row_number() OVER (ORDER BY id) AS place FROM locked
), changed AS (
    UPDATE messages SET status = 'pending', attempt = messages.attempt + 1, spent = 0,
        due_at = now() + old.place * interval '1 microsecond', claimed_at = NULL,
        accepted_at = NULL, sent_at = NULL, failed_at = NULL, wamid = NULL, error_code = NULL,
        reason = 'retry', concluded = false
    FROM old WHERE messages.id = old.id
    RETURNING {_CHANGED}
), {_HISTORY}, {DELTAS}
SELECT count(*) FROM changed
""")  # built from constants

_SETTLE = text(f"""
WITH old AS MATERIALIZED ({_LOCKED} ORDER BY id FOR UPDATE), changed AS (
    UPDATE messages SET status = 'failed', claimed_at = NULL, failed_at = now(),
        reason = 'settled', concluded = true
    FROM old WHERE messages.id = old.id
    RETURNING {_CHANGED}
), {_HISTORY}, {DELTAS}
SELECT count(*) FROM changed
""")  # built from constants


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows: of a status, of these codes or, without any, of all.

    `settled`: those too that an operator has settled. They may have arrived.
    """

    status: Status
    codes: AbstractSet[int] = frozenset()
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """How many rows a step moved, and after which id the next goes on; None after the last."""

    moved: int
    next_id: int | None


@dataclass(frozen=True, slots=True)
class _Found:
    """Rows to move; `last` is the last one looked at, None when no more follow."""

    ids: list[int]
    last: int | None

    @property
    def next_id(self) -> int | None:
        return self.ids[-1] if len(self.ids) == MOST else self.last


async def retry(
    connection: AsyncConnection,
    campaign: Campaign,
    wanted: Wanted,
    after: int,
    actor: str,
) -> Step:
    """Make failed or unknown rows pending again.

    A completed campaign runs again. Raises `CampaignRefused` where nothing may leave any more.
    """
    await _check_may_send(connection, campaign)
    found = await _find(connection, campaign, wanted, after)
    if not found.ids:
        return Step(0, found.next_id)
    await keep_running(connection, [campaign.id], actor)
    moved = await _move(connection, _RETRY, campaign, wanted.status, found)
    if moved:
        told = {
            "status": wanted.status,
            "error_codes": sorted(wanted.codes),
            "settled": wanted.settled,
            "requeued": moved,
        }
        await add_event(connection, campaign.id, "retried", actor, **told)
        await connection.execute(WAKE)
    return Step(moved, found.next_id)


async def settle(connection: AsyncConnection, campaign: Campaign, after: int, actor: str) -> Step:
    """Conclude that unknown rows have failed, in any state of the campaign.

    Evidence that comes later still moves them.
    """
    found = await _find(connection, campaign, Wanted(Status.UNKNOWN), after)
    moved = await _move(connection, _SETTLE, campaign, Status.UNKNOWN, found)
    if moved:
        await add_event(connection, campaign.id, "settled", actor, settled=moved)
    return Step(moved, found.next_id)


async def _check_may_send(connection: AsyncConnection, campaign: Campaign) -> None:
    states = (CampaignState.RUNNING, CampaignState.PAUSED, CampaignState.COMPLETED)
    if campaign.state not in states:
        raise CampaignRefused(f"the campaign is {campaign.state}: it sends nothing again")
    expired = text("SELECT coalesce(CAST(:at AS timestamptz) <= now(), false)")
    if await connection.scalar(expired, {"at": campaign.expires_at}):
        raise CampaignRefused("the campaign has expired: it sends nothing again")


async def _find(
    connection: AsyncConnection,
    campaign: Campaign,
    wanted: Wanted,
    after: int,
) -> _Found:
    statement = _WITH_CODES if wanted.codes else _ANY_CODE
    values = {"campaign": campaign.id, "after": after, "scan": SCAN, "most": MOST}
    rows = await connection.execute(
        statement, values | asdict(wanted) | {"codes": sorted(wanted.codes)}
    )
    found = rows.one()
    return _Found(found.ids, found.last if found.seen == SCAN else None)


async def _move(
    connection: AsyncConnection,
    move: TextClause,
    campaign: Campaign,
    status: Status,
    found: _Found,
) -> int:
    values = {"campaign": campaign.id, "status": status, "ids": found.ids}
    return int(await connection.scalar(move, values) or 0)
