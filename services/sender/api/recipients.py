"""A campaign's recipients: uploaded, listed, looked at one by one, and what was rejected."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.requests import ClientDisconnect

from services.sender.api.answers import Page, Recipient, RecipientInFull, TakenIn, answers
from services.sender.api.connection import ConnectionDep
from services.sender.api.idempotency import Answer, Once, StreamedOnceDep
from services.sender.api.keys import Caller, Operator, Reader, check_still_valid
from services.sender.api.paging import Cursor, Limit, after, page
from services.sender.api.process import RuntimeDep
from services.sender.audience import listing, uploads
from services.sender.audience.columns import PHONE_COLUMNS
from services.sender.audience.elements import ARRAY_LIMIT, FileTooLarge
from services.sender.audience.files import File, Format
from services.sender.audience.listing import Filter
from services.sender.audience.records import FileRefused
from services.sender.audience.rejects import rejects_csv
from services.sender.audience.uploads import IdleBodyError, Report, UploadLostError
from services.sender.campaigns import lifecycle
from services.sender.campaigns.lifecycle import Campaign
from services.sender.runtime import Runtime
from shared.domain.status import Status
from shared.web import Problem, lift_body_limit

_encode = msgspec.json.Encoder().encode

router = APIRouter(prefix="/v1/campaigns/{campaign_id}", tags=["recipients"])

_BODY = {
    "requestBody": {
        "required": True,
        "description": "CSV in UTF-8 with a header row, separated by commas, semicolons or tabs."
        f" The number's column is one of {', '.join(PHONE_COLUMNS)}; external_id is yours, unique"
        " in the campaign; metadata (a flat JSON object) and metadata.KEY are kept and shown, never"
        " sent; every other column is a parameter of the template. A file without a row, or without"
        " a column that the template names, is refused, and so is a row without a value for a text"
        " that would be empty. Or one JSON object a line, or an"
        f" array of them (up to {ARRAY_LIMIT >> 20} MiB), with keys for columns; an"
        " empty array adds nobody. Each may come with Content-Encoding: gzip.",
        "content": {
            kind.value: {"schema": {"type": "string", "format": "binary"}} for kind in Format
        },
    }
}

_REJECTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {"schema": {"type": "string"}}}}
}


def _filter(
    status: Status | None = None,
    error_code: Annotated[int | None, Query(ge=0, lt=1 << 31)] = None,
) -> Filter:
    return Filter(status, error_code)


FilterDep = Annotated[Filter, Depends(_filter)]


@router.post("/recipients", openapi_extra=_BODY, **answers(TakenIn, 201))
async def upload(
    campaign_id: UUID,
    request: Request,
    runtime: RuntimeDep,
    caller: Operator,
    once: StreamedOnceDep,
) -> JSONResponse:
    """Add recipients from a file: the whole file or nothing.

    `rows` = `accepted` + `duplicate` + `invalid`; blank rows are none. In `rejects` a row of CSV
    has its number in a spreadsheet (the header is row 1), one of NDJSON that of its line, one of an
    array its place.
    """
    kind, gzipped = _format(request), _is_gzipped(request)
    lift_body_limit(request)
    async with runtime.engine.connect() as connection:
        campaign = await lifecycle.find(connection, campaign_id)
    try:
        async with _take_slot(request.app.state.upload_slots):
            once.read(f"{kind} {gzipped}\n".encode())  # what the same bytes mean
            file = File(_read(request, once), kind, gzipped)
            return await _take_in(runtime, campaign, file, once, caller)
    except FileRefused as refused:
        raise _refusal(refused) from None
    except IdleBodyError as idle:
        raise Problem(408, str(idle)) from None
    except UploadLostError as lost:
        raise Problem(409, str(lost)) from None
    except ClientDisconnect:
        raise Problem(400, "the body ended early") from None  # nobody is left to read it


@router.get("/recipients", **answers(Page[Recipient]))
async def list_recipients(
    campaign_id: UUID,
    connection: ConnectionDep,
    _: Reader,
    wanted: FilterDep,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """In the order of their upload. With `status` a page may be short although more follow.

    `error_code` is Meta's last word on the recipient's message.
    """
    campaign = await lifecycle.find(connection, campaign_id)
    found = await listing.recipients(connection, campaign, wanted, after(cursor) or 0, limit)
    return await _json(page(found.recipients, found.next_id))


@router.get("/recipients/{recipient_id}", **answers(RecipientInFull))
async def get_recipient(
    campaign_id: UUID,
    recipient_id: Annotated[int, Path(ge=1, lt=1 << 63)],
    connection: ConnectionDep,
    _: Reader,
) -> Response:
    """One recipient with the attempts that did not end accepted."""
    campaign = await lifecycle.find(connection, campaign_id)
    found = await listing.recipient(connection, campaign, recipient_id)
    if found is None:
        raise Problem(404, "the campaign has no recipient with this id")
    return await _json(found)


@router.get("/rejects", response_class=StreamingResponse, responses=_REJECTS)
async def list_rejects(campaign_id: UUID, runtime: RuntimeDep, _: Reader) -> StreamingResponse:
    """Every rejected row of the uploads, as CSV."""
    async with runtime.engine.connect() as connection:
        campaign = await lifecycle.find(connection, campaign_id)
    lines = rejects_csv(runtime.engine, campaign)
    return StreamingResponse(lines, media_type="text/csv; charset=utf-8")


async def _json(shown: dict[str, Any]) -> Response:
    """In a thread: a thousand recipients with all their columns may be megabytes."""
    return Response(await asyncio.to_thread(_encode, shown), media_type="application/json")


async def _take_in(
    runtime: Runtime, campaign: Campaign, file: File, once: Once, caller: Caller
) -> JSONResponse:
    async with runtime.engine.connect() as connection:
        if await once.begin(connection):
            async with uploads.whole(runtime.engine, connection, campaign) as upload:
                report = await uploads.take_in(connection, upload, campaign, file, caller.actor)
                await check_still_valid(connection, caller)
                return await once.keep(connection, Answer(201, _shown(report)))
    # The body is only compared with the first one's, and may take long: no connection waits for it.
    async for _ in uploads.pieces(file.body):
        pass
    return once.again()


async def _read(request: Request, once: Once) -> AsyncGenerator[bytes]:
    async for data in request.stream():
        once.read(data)
        yield data


def _format(request: Request) -> Format:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        return Format(kind)
    except ValueError:
        taken = ", ".join(Format)
        detail = f"recipients are taken as one of {taken}, not as {kind or 'nothing'}"
        raise Problem(415, detail) from None


def _is_gzipped(request: Request) -> bool:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        detail = f"recipients are taken uncompressed or with Content-Encoding gzip, not {encoding}"
        raise Problem(415, detail, headers={"Accept-Encoding": "gzip"})
    return encoding == "gzip"


def _take_slot(slots: asyncio.Semaphore) -> asyncio.Semaphore:
    """Each upload keeps a database connection, and everybody else needs some too."""
    if slots.locked():
        detail = "as many uploads are under way as this process takes"
        raise Problem(503, detail, headers={"Retry-After": "5"})
    return slots


def _refusal(refused: FileRefused) -> Problem:
    place: dict[str, Any] = {} if refused.line is None else {"line": refused.line}
    detail = refused.detail
    if refused.columns:
        place["columns"] = list(refused.columns)
        detail += f"; columns found: {', '.join(refused.columns[:20])}"
    status = 413 if isinstance(refused, FileTooLarge) else 422
    return Problem(status, detail, errors=[place] if place else [])


def _shown(report: Report) -> dict[str, Any]:
    counts = report.counts
    return {
        "upload_id": report.upload_id,
        "rows": counts.rows,
        "accepted": counts.accepted,
        "duplicate": counts.duplicate,
        "invalid": counts.invalid,
        "rejects": [{"row": row, "reason": reason} for row, reason in report.rejects],
    }
