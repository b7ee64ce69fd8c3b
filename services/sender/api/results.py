"""What became of a campaign, as a whole: the export of its recipients, and its minutes."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from services.sender.api.answers import Minute, Page, answers
from services.sender.api.connection import ConnectionDep
from services.sender.api.keys import Reader
from services.sender.api.paging import Cursor, Limit, after, page
from services.sender.api.process import RuntimeDep
from services.sender.audience.exports import ExportFormat, export
from services.sender.campaigns import lifecycle
from shared.db.counters import minutes
from shared.web import Problem

router = APIRouter(prefix="/v1/campaigns/{campaign_id}", tags=["results"])

_MEDIA_TYPES = {
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.NDJSON: "application/x-ndjson",
}
_STREAMS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "content": {
            media.partition(";")[0]: {"schema": {"type": "string"}}
            for media in _MEDIA_TYPES.values()
        }
    }
}
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)


@router.get("/export", response_class=StreamingResponse, responses=_STREAMS)
async def export_recipients(
    campaign_id: UUID,
    runtime: RuntimeDep,
    _: Reader,
    kind: Annotated[ExportFormat, Query(alias="format")] = ExportFormat.CSV,
) -> StreamingResponse:
    """Every recipient and what became of the message, in the order of their upload.

    CSV: text that a spreadsheet would run begins with an apostrophe. NDJSON: exact.
    """
    async with runtime.engine.connect() as connection:
        campaign = await lifecycle.find(connection, campaign_id)
    name = f"campaign-{campaign_id}.{kind}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    lines = export(runtime.engine, campaign, kind)
    return StreamingResponse(lines, media_type=_MEDIA_TYPES[kind], headers=headers)


@router.get("/timeline", **answers(Page[Minute]))
async def list_minutes(
    campaign_id: UUID,
    connection: ConnectionDep,
    _: Reader,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> dict[str, Any]:
    """How many messages entered each status, per minute, the oldest first.

    A message that is tried again enters `pending` again. Minutes without any are left out; the
    newest still grow.
    """
    campaign = await lifecycle.find(connection, campaign_id)
    found = await minutes(connection, campaign.id, _minute(after(cursor)), limit)
    following = (found[-1][0] - _FIRST) // _MINUTE if len(found) == limit else None
    return page([{"minute": minute, "entered": entered} for minute, entered in found], following)


def _minute(number: int | None) -> datetime:
    """The minute in a cursor of ours."""
    try:
        return _FIRST if number is None else _FIRST + number * _MINUTE
    except OverflowError:
        raise Problem(422, "the cursor is not one of this API") from None
