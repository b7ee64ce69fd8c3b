"""What a campaign's start would meet, without starting it; and how a start is refused with it."""

from uuid import UUID

from fastapi import APIRouter
from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.api.connection import ConnectionDep
from services.sender.api.keys import Reader
from services.sender.api.process import RuntimeDep
from services.sender.campaigns.check import Check, check, survey
from services.sender.campaigns.lifecycle import find
from services.sender.campaigns.starts import NotReady
from services.sender.settings import SenderSettings
from shared.web import Problem

router = APIRouter(prefix="/v1/campaigns/{campaign_id}", tags=["campaigns"])

_AS_SHOWN = TypeAdapter(Check)


@router.post("/check")
async def check_campaign(
    campaign_id: UUID, runtime: RuntimeDep, connection: ConnectionDep, _: Reader
) -> Check:
    """Everything that would refuse or spoil the start, each with its cure. It changes nothing.

    A scheduled campaign is looked at as its start at its time would; one that runs or has ended is
    not `ready`, as `wrong_state`, and the rest says how it stands.
    """
    settings = runtime.settings
    campaign = await find(connection, campaign_id)
    return await check(connection, campaign, settings.token_for, settings.allowed_recipients)


async def refusal(
    connection: AsyncConnection, refused: NotReady, settings: SenderSettings
) -> Problem:
    """A refused start, with everything that a check would say."""
    allowed = settings.allowed_recipients
    found = await survey(connection, refused.campaign, refused.problems, allowed)
    return Problem(409, str(refused), members=_AS_SHOWN.dump_python(found, mode="json"))
