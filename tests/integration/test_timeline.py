"""The minutes of a campaign: what entered each status, folded or not, in pages."""

from uuid import uuid4

import pytest
from sender_api import Api, people
from sqlalchemy import text

from services.sender.orchestration.folder import fold_once
from shared.domain.status import Status

pytest_plugins = ["sender_server"]

BOOK = text("""
INSERT INTO counter_deltas (campaign_id, minute, status, error_code, entered, departed)
SELECT c.id, '2026-05-01 10:00+00'::timestamptz + make_interval(mins => m.after), m.status, m.code,
       m.entered, m.departed
FROM campaigns c, (VALUES
    (0, 'pending'::message_status, 0, 5, 0), (1, 'pending', 0, 0, 3), (1, 'claimed', 0, 3, 0),
    (2, 'claimed', 0, 0, 3), (2, 'accepted', 0, 1, 0), (2, 'failed', 131026, 1, 0),
    (2, 'failed', 131049, 1, 0), (4, 'accepted', 0, 0, 1), (5, 'delivered', 0, 1, 0)
) AS m (after, status, code, entered, departed)
""")
MINUTES = [
    ("2026-05-01T10:00:00Z", {"pending": 5}),
    ("2026-05-01T10:01:00Z", {"claimed": 3}),
    ("2026-05-01T10:02:00Z", {"accepted": 1, "failed": 2}),
    ("2026-05-01T10:05:00Z", {"delivered": 1}),
]


async def book(engine) -> None:
    async with engine.begin() as connection:
        await connection.execute(BOOK)


async def timeline(api: Api, path: str, **params: object) -> tuple[list[object], str | None]:
    answer = await api.get(f"{path}/timeline", params=params)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    for one in told["data"]:
        assert set(one["entered"]) == set(Status)
    found = [
        (one["minute"], {status: count for status, count in one["entered"].items() if count})
        for one in told["data"]
    ]
    return found, told["next_cursor"]


async def test_minutes_are_told_folded_or_not(api: Api, engine):
    path = await api.draft()
    await book(engine)
    assert await timeline(api, path) == (MINUTES, None)
    await fold_once(engine)
    assert await timeline(api, path) == (MINUTES, None)
    await book(engine)  # half folded, half not
    doubled = [(at, {status: 2 * n for status, n in found.items()}) for at, found in MINUTES]
    assert await timeline(api, path) == (doubled, None)


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_pages_join_without_a_seam(api: Api, engine, limit):
    path = await api.draft()
    await book(engine)
    found, cursor = await timeline(api, path, limit=limit)
    while cursor is not None:
        more, cursor = await timeline(api, path, limit=limit, cursor=cursor)
        found += more
    assert found == MINUTES


async def test_an_upload_enters_pending(api: Api):
    path, other = await api.draft(), await api.draft()
    assert await timeline(api, path) == ([], None)
    await api.upload(path, people(7))
    await api.upload(other, people(3))
    found, _ = await timeline(api, path)
    assert [entered for _, entered in found] == [{"pending": 7}]


@pytest.mark.parametrize("cursor", ["!", "-1", "1y2p0ij32e8e7", "zzz", "0000", ""])
async def test_a_cursor_of_someone_else_is_refused(api: Api, cursor):
    path = await api.draft()
    answer = await api.get(f"{path}/timeline", params={"cursor": cursor})
    assert answer.status_code == 422


async def test_no_campaign_has_no_minutes(api: Api):
    assert (await api.get(f"/v1/campaigns/{uuid4()}/timeline")).status_code == 404
