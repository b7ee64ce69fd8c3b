"""What a code of Meta's does beside its message: pauses and opt-outs, by reply or webhook."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.db.campaigns import pause_campaigns
from shared.db.notices import WAKE
from shared.domain.campaigns import PauseReason
from shared.whatsapp.errors import Effect

_CAMPAIGNS_OF_ACCOUNT = text("""
SELECT c.id FROM campaigns c JOIN numbers n USING (phone_number_id)
WHERE c.state = 'running' AND n.waba_id IN (
    SELECT n.waba_id FROM campaigns c JOIN numbers n USING (phone_number_id) WHERE c.id = :campaign
)
""")

_CAMPAIGNS_OF_PORTFOLIO = text("""
SELECT c.id FROM campaigns c JOIN numbers n USING (phone_number_id)
WHERE c.state = 'running' AND EXISTS (
    SELECT FROM campaigns o JOIN numbers m USING (phone_number_id)
    WHERE o.id = :campaign AND (m.waba_id = n.waba_id OR m.portfolio_id = n.portfolio_id)
)
""")

_CAMPAIGNS_OF_TOKEN = text("""
SELECT c.id FROM campaigns c JOIN numbers n USING (phone_number_id)
WHERE c.state = 'running' AND EXISTS (
    SELECT FROM campaigns o JOIN numbers m USING (phone_number_id)
    WHERE o.id = :campaign AND m.token_name IS NOT DISTINCT FROM n.token_name
)
""")

# A pause is only prolonged; one without an end stays so. `greatest` ignores nulls. Numbers are
# locked in one order, so that two batches never wait for each other in a circle.
_PAUSE_NUMBERS = text("""
WITH met AS MATERIALIZED (
    SELECT n.* FROM numbers n JOIN campaigns c USING (phone_number_id) WHERE c.id = :campaign
), concerned AS MATERIALIZED (
    SELECT n.phone_number_id FROM numbers n JOIN met ON CASE :scope
        WHEN 'account' THEN n.waba_id = met.waba_id
        WHEN 'token' THEN n.token_name IS NOT DISTINCT FROM met.token_name
        ELSE n.phone_number_id = met.phone_number_id END
    WHERE (n.state = 'active' OR n.paused_until IS NOT NULL)
      AND (n.state = 'active' OR CAST(:seconds AS double precision) IS NULL
           OR n.paused_until < now() + make_interval(secs => CAST(:seconds AS double precision)))
    ORDER BY n.phone_number_id FOR NO KEY UPDATE OF n
)
UPDATE numbers SET state = 'paused', paused_reason = :reason,
    paused_until = CASE WHEN CAST(:seconds AS double precision) IS NOT NULL THEN greatest(
        CASE state WHEN 'paused' THEN paused_until END,
        now() + make_interval(secs => CAST(:seconds AS double precision))) END
FROM concerned WHERE numbers.phone_number_id = concerned.phone_number_id
RETURNING numbers.phone_number_id
""")

_OPT_OUT = text("""
INSERT INTO opt_outs (person, source)
SELECT person, 'meta' FROM recipients WHERE id = :message
UNION SELECT person, 'meta' FROM live_messages WHERE id = :message
ON CONFLICT DO NOTHING
""")

_REASONS = {
    Effect.PAUSE_CAMPAIGN: PauseReason.TEMPLATE,
    Effect.PAUSE_ACCOUNT: PauseReason.ACCOUNT,
    Effect.PAUSE_PORTFOLIO: PauseReason.ACCOUNT,
    Effect.PAUSE_TOKEN: PauseReason.TOKEN,
}
_CAMPAIGNS = {
    Effect.PAUSE_ACCOUNT: _CAMPAIGNS_OF_ACCOUNT,
    Effect.PAUSE_PORTFOLIO: _CAMPAIGNS_OF_PORTFOLIO,
    Effect.PAUSE_TOKEN: _CAMPAIGNS_OF_TOKEN,
}
_NUMBERS = {
    Effect.PAUSE_NUMBER: "number",
    Effect.PAUSE_NUMBERS_OF_ACCOUNT: "account",
    Effect.PAUSE_NUMBERS_OF_TOKEN: "token",
}


@dataclass(frozen=True, slots=True)
class Met:
    """A code of Meta's that a message met, and what it means beside the message."""

    code: int
    effect: Effect
    pause: timedelta | None
    campaign_id: int
    message_id: int


async def apply_effects(connection: AsyncConnection, met: Collection[Met], actor: str) -> None:
    """Pause and opt out what the codes call for; once per code and campaign, not per message."""
    # In one order everywhere: two batches never wait for each other in a circle.
    firsts = {(one.campaign_id, one.code, one.effect): one for one in met}
    for key in sorted(firsts):
        await _apply(connection, firsts[key], actor)
    for one in sorted(met, key=lambda one: one.message_id):
        if one.effect is Effect.OPT_OUT:
            await connection.execute(_OPT_OUT, {"message": one.message_id})


async def _apply(connection: AsyncConnection, met: Met, actor: str) -> None:
    if met.effect in _REASONS:
        campaigns = await _campaigns(connection, met)
        reason = _REASONS[met.effect]
        await pause_campaigns(connection, campaigns, reason, actor, code=met.code)
    elif met.effect in _NUMBERS:
        await _pause_numbers(connection, met)


async def _pause_numbers(connection: AsyncConnection, met: Met) -> None:
    values = {
        "scope": _NUMBERS[met.effect],
        "reason": f"meta:{met.code}",
        "seconds": met.pause.total_seconds() if met.pause else None,
        "campaign": met.campaign_id,
    }
    if (await connection.execute(_PAUSE_NUMBERS, values)).all():
        await connection.execute(WAKE)


async def _campaigns(connection: AsyncConnection, met: Met) -> list[int]:
    if met.effect is Effect.PAUSE_CAMPAIGN:
        return [met.campaign_id]
    found = await connection.execute(_CAMPAIGNS[met.effect], {"campaign": met.campaign_id})
    return [row.id for row in found]
