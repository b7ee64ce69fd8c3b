"""What a code of Meta's does beside its message: pauses and opt-outs, by reply or webhook."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.db.campaigns import pause_campaigns
from shared.domain.campaigns import PauseReason
from shared.whatsapp.errors import Effect, rule_for

_CAMPAIGNS_OF_ACCOUNT = text("""
SELECT c.id FROM campaigns c JOIN numbers n USING (phone_number_id)
WHERE c.state = 'running' AND n.waba_id IN (
    SELECT n.waba_id FROM campaigns c JOIN numbers n USING (phone_number_id) WHERE c.id = :campaign
)
""")

_CAMPAIGNS_OF_TOKEN = text("""
SELECT c.id FROM campaigns c JOIN numbers n USING (phone_number_id)
WHERE c.state = 'running' AND EXISTS (
    SELECT FROM campaigns o JOIN numbers m USING (phone_number_id)
    WHERE o.id = :campaign AND m.token_name IS NOT DISTINCT FROM n.token_name
)
""")

# A pause is only prolonged; one without an end stays so. `greatest` ignores nulls.
_PAUSE_NUMBER = text("""
UPDATE numbers SET state = 'paused', paused_reason = :reason,
    paused_until = CASE WHEN CAST(:seconds AS double precision) IS NOT NULL THEN greatest(
        CASE state WHEN 'paused' THEN paused_until END,
        now() + make_interval(secs => CAST(:seconds AS double precision))) END
WHERE phone_number_id = (SELECT phone_number_id FROM campaigns WHERE id = :campaign)
  AND (state = 'active' OR paused_until IS NOT NULL)
  AND (state = 'active' OR CAST(:seconds AS double precision) IS NULL
       OR paused_until < now() + make_interval(secs => CAST(:seconds AS double precision)))
""")

_OPT_OUT = text("""
INSERT INTO opt_outs (person, source)
SELECT person, 'meta' FROM recipients WHERE id = :message ON CONFLICT DO NOTHING
""")

_REASONS = {
    Effect.PAUSE_CAMPAIGN: PauseReason.TEMPLATE,
    Effect.PAUSE_ACCOUNT: PauseReason.ACCOUNT,
    Effect.PAUSE_TOKEN: PauseReason.TOKEN,
}


@dataclass(frozen=True, slots=True)
class Met:
    """A code of Meta's that a message met."""

    code: int
    campaign_id: int
    message_id: int


async def apply_effects(
    connection: AsyncConnection, met: Collection[Met], http_status: int, actor: str
) -> None:
    """Pause and opt out what the codes call for; once per code and campaign, not per message."""
    # In one order everywhere: two batches never wait for each other in a circle.
    firsts = {(one.campaign_id, one.code): one for one in met}
    for key in sorted(firsts):
        await _apply(connection, firsts[key], http_status, actor)
    for one in sorted(met, key=lambda one: one.message_id):
        if rule_for(one.code, http_status).effect is Effect.OPT_OUT:
            await connection.execute(_OPT_OUT, {"message": one.message_id})


async def _apply(connection: AsyncConnection, met: Met, http_status: int, actor: str) -> None:
    rule = rule_for(met.code, http_status)
    match rule.effect:
        case Effect.PAUSE_CAMPAIGN | Effect.PAUSE_ACCOUNT | Effect.PAUSE_TOKEN:
            campaigns = await _campaigns(connection, rule.effect, met.campaign_id)
            reason = _REASONS[rule.effect]
            await pause_campaigns(connection, campaigns, reason, actor, code=met.code)
        case Effect.PAUSE_NUMBER:
            seconds = rule.pause.total_seconds() if rule.pause else None
            values = {"reason": f"meta:{met.code}", "seconds": seconds, "campaign": met.campaign_id}
            await connection.execute(_PAUSE_NUMBER, values)
        case Effect.NONE | Effect.SLOW_NUMBER | Effect.OPT_OUT:
            pass


async def _campaigns(connection: AsyncConnection, effect: Effect, campaign_id: int) -> list[int]:
    if effect is Effect.PAUSE_CAMPAIGN:
        return [campaign_id]
    token = effect is Effect.PAUSE_TOKEN
    statement = _CAMPAIGNS_OF_TOKEN if token else _CAMPAIGNS_OF_ACCOUNT
    return [row.id for row in await connection.execute(statement, {"campaign": campaign_id})]
