"""How many of an audience would be skipped, at a cost that does not grow with it."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.campaigns.order import first, last

#: At most so many opt-outs or people are looked up: a fraction of a second.
MOST = 10_000

_FEW_OPT_OUTS = text("SELECT count(*) <= :most FROM (SELECT FROM opt_outs LIMIT :most + 1) AS few")

# LIMIT keeps the planner from reading a whole table instead: each look is one in an index.
_OPTED_OUT = text("""
SELECT count(*) FROM opt_outs CROSS JOIN LATERAL (
    SELECT FROM recipients
    WHERE recipients.person = opt_outs.person AND recipients.campaign_id = :campaign LIMIT 1
) AS found
""")

# Everybody, or one of each of so many equal parts: not always the first of its part, lest a pattern
# of the file should look like the whole.
_LOOK = text(f"""
WITH ends AS MATERIALIZED (
    SELECT ({first(":campaign")}) AS first, ({last(":campaign")}) AS last
), parts AS MATERIALIZED (
    SELECT first + ((last - first) * (part + part * 0.618034 % 1) / :most)::bigint AS start
    FROM ends CROSS JOIN generate_series(0, :most - 1) AS part WHERE NOT :all
), looked AS MATERIALIZED (
    SELECT id FROM messages WHERE campaign_id = :campaign AND :all
    UNION ALL
    SELECT DISTINCT found.id FROM parts CROSS JOIN LATERAL (
        SELECT id FROM messages WHERE (campaign_id, id) >= (:campaign, start)
            AND campaign_id <= :campaign
        ORDER BY campaign_id, id LIMIT 1
    ) AS found
)
SELECT count(*) AS looked, count(*) FILTER (WHERE opted_out) AS opted_out,
    count(*) FILTER (WHERE NOT coalesce((phone || '.') ^@ ANY (CAST(:allowed AS text[])), false))
        AS not_allowed
FROM looked CROSS JOIN LATERAL (
    SELECT phone, EXISTS (SELECT FROM opt_outs WHERE opt_outs.person = recipients.person LIMIT 1)
        AS opted_out
    FROM recipients WHERE recipients.id = looked.id LIMIT 1
) AS person
""")  # built from constants


@dataclass(frozen=True, slots=True)
class LeftOut:
    """People who would be skipped. Large numbers may be projected from an even sample."""

    opted_out: int
    not_allowed: int


async def left_out(
    connection: AsyncConnection, campaign_id: int, people: int, allowed: Sequence[str] | None
) -> LeftOut:
    """`allowed` are beginnings of phone numbers, None for all."""
    few = bool(await connection.scalar(_FEW_OPT_OUTS, {"most": MOST}))
    opted_out = 0
    if few:
        opted_out = int(await connection.scalar(_OPTED_OUT, {"campaign": campaign_id}) or 0)
    if few and allowed is None:
        return LeftOut(opted_out, 0)
    seen = await _look(connection, campaign_id, people, allowed)
    return LeftOut(opted_out if few else seen.opted_out, seen.not_allowed)


async def _look(
    connection: AsyncConnection, campaign_id: int, people: int, allowed: Sequence[str] | None
) -> LeftOut:
    values = {
        "campaign": campaign_id,
        "all": people <= MOST,
        "most": MOST,
        "allowed": None if allowed is None else list(allowed),
    }
    row = (await connection.execute(_LOOK, values)).one()
    share = people / row.looked if people > MOST and row.looked else 1
    not_allowed = 0 if allowed is None else round(row.not_allowed * share)
    return LeftOut(round(row.opted_out * share), not_allowed)
