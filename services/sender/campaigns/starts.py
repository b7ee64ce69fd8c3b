"""Starting a campaign, now or at a time, after a look at everything that stands against it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from pydantic_core import to_jsonable_python
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.campaigns.lifecycle import (
    Campaign,
    CampaignRefused,
    find_held,
    moving,
    transition,
)
from services.sender.campaigns.readiness import (
    Finding,
    TokenFor,
    obstacles,
    schedule_problems,
    start_problems,
)
from shared.domain.campaigns import CampaignState

_RUN = (
    "state = 'running', started_at = now(), keep_open = keep_open OR :keep_open,"
    " audience = CASE WHEN keep_open OR :keep_open THEN audience ELSE 'closed' END"
)
_START = moving(_RUN, "state = 'draft'")
_START_DUE = moving(_RUN, "state = 'scheduled' AND start_at <= now()")
# The audience stays as it is: it closes at the start. A start that was paused or missed may get
# another time.
_SCHEDULE = moving(
    "state = 'scheduled', pause_reason = NULL, start_at = :at, keep_open = keep_open OR :keep_open",
    "(state IN ('draft', 'scheduled') OR state = 'paused' AND started_at IS NULL)"
    " AND coalesce(expires_at > :at, true)",
)


class NotReady(CampaignRefused):
    """It may not start; `problems` are all that stand against it.

    `campaign` is what it would have been: with the time and the audience that were asked for.
    """

    def __init__(self, campaign: Campaign, problems: Sequence[Finding]) -> None:
        super().__init__("; ".join(one.detail for one in problems))
        self.campaign = campaign
        self.problems = list(problems)


async def start(
    connection: AsyncConnection,
    public_id: UUID,
    actor: str,
    token_for: TokenFor,
    *,
    keep_open: bool,
) -> Campaign:
    """Start a draft. Raises `NotReady`."""
    before = await find_held(connection, public_id)
    wanted = replace(before, keep_open=keep_open or before.keep_open)
    problems = await start_problems(connection, wanted, (CampaignState.DRAFT,), token_for)
    if problems:
        raise NotReady(wanted, problems)
    values = {"public_id": public_id, "keep_open": keep_open}
    return await transition(connection, _START, values, "started", actor)


async def schedule(
    connection: AsyncConnection, public_id: UUID, at: datetime, actor: str, *, keep_open: bool
) -> Campaign:
    """Let what has not run yet start at a time; until then its audience stays open.

    Raises `NotReady`.
    """
    before = await find_held(connection, public_id)
    wanted = replace(before, start_at=at, keep_open=keep_open or before.keep_open)
    if problems := schedule_problems(wanted, at):
        raise NotReady(wanted, problems)
    values = {"public_id": public_id, "at": at, "keep_open": keep_open}
    details = {"at": to_jsonable_python(at)}
    return await transition(connection, _SCHEDULE, values, "scheduled", actor, details)


async def start_due(connection: AsyncConnection, public_id: UUID, actor: str) -> Campaign:
    """Start a scheduled campaign whose time has come. Raises `CampaignRefused`.

    Its token's setting is not looked at: the scheduler's process need not be one that sends.
    """
    campaign = await find_held(connection, public_id)
    if problems := await obstacles(connection, campaign):
        raise NotReady(campaign, problems)
    values = {"public_id": public_id, "keep_open": False}
    return await transition(connection, _START_DUE, values, "started", actor)
