"""Takes one file into a campaign: all of it or nothing, in constant memory."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.sender.audience.files import File, parser_for
from services.sender.audience.load import Counts, Load
from services.sender.audience.records import FileRefused
from services.sender.campaigns.lifecycle import Campaign, CampaignRefused, hold_open
from services.sender.campaigns.template import TemplateError, compile_template
from shared.db.campaigns import add_event
from shared.db.notices import WAKE
from shared.periodic import every

# Parsed at once in a thread: some 5,000 rows, a tenth of a second at most.
PIECE = 256 * 1024
# Rows do not wait longer for their piece to fill up, so that the database sees a slow client move.
PIECE_SECONDS = 10.0
IDLE_SECONDS = 60.0
HEARTBEAT_SECONDS = 5.0
SHOWN_REJECTS = 100

_BEGIN = text("INSERT INTO uploads (campaign_id) VALUES (:campaign) RETURNING id")
_BEAT = text("UPDATE uploads SET heartbeat_at = now() WHERE id = :upload")
_FAIL = text("""
UPDATE uploads SET state = 'failed', error = :error, finished_at = now()
WHERE id = :upload AND state = 'running'
""")
_DONE = text("""
UPDATE uploads SET state = 'done', rows = :rows, accepted = :accepted, duplicate = :duplicate,
    invalid = :invalid, finished_at = clock_timestamp()
WHERE id = :upload AND state = 'running' RETURNING id
""")
_FIRST_REJECTS = text("""
SELECT row_number, reason FROM upload_rejects WHERE upload_id = :upload
ORDER BY row_number LIMIT :most
""")


class IdleBodyError(Exception):
    """The client has sent nothing for a minute."""

    def __init__(self) -> None:
        super().__init__(f"no data came for {IDLE_SECONDS:g} s")


class UploadLostError(Exception):
    """The upload was given up by someone else while it went on."""

    def __init__(self) -> None:
        super().__init__("the upload was given up while it went on; send it again")


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a file. `rejects` are the first ones: row number and reason."""

    upload_id: int
    counts: Counts
    rejects: list[tuple[int, str]]


class Upload:
    """One upload's row: it says that the upload goes on, on a connection of its own.

    What the upload's own transaction writes is not seen before its end.
    """

    def __init__(self, engine: AsyncEngine, upload_id: int) -> None:
        self.id = upload_id
        self._engine = engine

    @classmethod
    async def begin(cls, engine: AsyncEngine, campaign: Campaign) -> Self:
        async with engine.begin() as connection:
            await hold_open(connection, campaign.id)
            row = (await connection.execute(_BEGIN, {"campaign": campaign.id})).one()
        return cls(engine, row.id)

    async def beat(self) -> bool:
        async with self._engine.begin() as connection:
            await connection.execute(_BEAT, {"upload": self.id})
        return False

    async def fail(self, error: str) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(_FAIL, {"upload": self.id, "error": error})


@asynccontextmanager
async def whole(
    engine: AsyncEngine, connection: AsyncConnection, campaign: Campaign
) -> AsyncGenerator[Upload]:
    """Commit all that happens on `connection`, or nothing of it; the upload's row says which.

    When the process dies the row stays `running` with an old heartbeat, and no data is there.
    """
    upload = await Upload.begin(engine, campaign)
    beating = asyncio.create_task(every(HEARTBEAT_SECONDS, upload.beat, name="upload"))
    failed: str | None = "interrupted"
    try:
        yield upload
        await connection.commit()
        failed = None
    except (FileRefused, CampaignRefused, IdleBodyError) as refused:
        failed = str(refused)
        raise
    finally:
        beating.cancel()
        if failed is not None:
            await connection.rollback()  # first: it may hold the row that is written next
            await upload.fail(failed)


async def take_in(
    connection: AsyncConnection,
    upload: Upload,
    campaign: Campaign,
    file: File,
    actor: str,
) -> Report:
    """Read, load and count a file in the transaction of `connection`, within `whole`.

    Raises `FileRefused`, `IdleBodyError`, and what `hold_open` raises when the campaign has closed
    meanwhile. The campaign's row is held only at the end, so that it can be paused at any time.
    """
    load = await Load.begin(connection, campaign.id, upload.id)
    parser = parser_for(file.format, campaign.default_country, _needed(campaign))
    async for piece in pieces(file.unpacked()):
        await load.stage(await asyncio.to_thread(parser.feed, piece))
    await load.stage(await asyncio.to_thread(parser.feed, b"", final=True))
    await load.insert()
    await load.count()
    await _finish(connection, campaign, upload, load.counts, actor)
    return Report(upload.id, load.counts, await _first_rejects(connection, upload))


def _needed(campaign: Campaign) -> Mapping[str, bool]:
    """Known since the campaign was made: the template never changes."""
    try:
        return compile_template(campaign.template).columns
    except TemplateError as error:
        raise CampaignRefused(f"the campaign's template is broken: {error}") from None


async def pieces(body: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """A body in pieces worth a thread's while; a slow one in smaller ones."""
    piece, began = bytearray(), time.monotonic()
    while True:
        data = await _next(body)
        if data is None:
            break
        piece += data
        if len(piece) >= PIECE or time.monotonic() - began >= PIECE_SECONDS:
            yield bytes(piece)
            piece, began = bytearray(), time.monotonic()
    yield bytes(piece)


async def _next(body: AsyncIterator[bytes]) -> bytes | None:
    try:
        async with asyncio.timeout(IDLE_SECONDS):
            return await anext(body, None)
    except TimeoutError:
        raise IdleBodyError from None


async def _finish(
    connection: AsyncConnection, campaign: Campaign, upload: Upload, counts: Counts, actor: str
) -> None:
    await hold_open(connection, campaign.id)
    numbers = {
        "rows": counts.rows,
        "accepted": counts.accepted,
        "duplicate": counts.duplicate,
        "invalid": counts.invalid,
    }
    done = await connection.execute(_DONE, {"upload": upload.id, **numbers})
    if done.first() is None:
        raise UploadLostError
    await add_event(connection, campaign.id, "uploaded", actor, upload=upload.id, **numbers)
    await connection.execute(WAKE)


async def _first_rejects(connection: AsyncConnection, upload: Upload) -> list[tuple[int, str]]:
    values = {"upload": upload.id, "most": SHOWN_REJECTS}
    rows = await connection.execute(_FIRST_REJECTS, values)
    return [(row.row_number, row.reason) for row in rows]
