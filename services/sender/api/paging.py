"""Lists in pages: a limit, and a cursor that says after which id to go on."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeVar
from zlib import crc32

from fastapi import Query

from shared.web import Problem

Limit = Annotated[int, Query(ge=1, le=1000)]
Cursor = Annotated[str | None, Query(max_length=32)]

_CHECK: Final = 4

Item = TypeVar("Item")


def after(cursor: str | None) -> int | None:
    """The id in a cursor of ours."""
    if cursor is None:
        return None
    number, check = cursor[:-_CHECK], cursor[-_CHECK:]
    if not number or check != _check(number) or (found := int(number, 36)) >= 1 << 63:
        raise Problem(422, "the cursor is not one of this API: take next_cursor as it comes")
    return found


def page(data: Sequence[Any], next_id: int | None) -> dict[str, Any]:
    """A page; `next_id` is where the next one goes on, None when this one is the last."""
    return {"data": data, "next_cursor": cursor_of(next_id)}


def cut(found: Sequence[Item], cursor: str | None, limit: int) -> tuple[Sequence[Item], int | None]:
    """A page of a short list that is there as a whole, and where the next one begins."""
    start = after(cursor) or 0
    end = start + limit
    return found[start:end], end if end < len(found) else None


def cursor_of(next_id: int | None) -> str | None:
    if next_id is None:
        return None
    number = _base36(next_id)
    return number + _check(number)


def _check(number: str) -> str:
    """What tells a cursor of ours from a slip, which would begin anywhere."""
    return _base36(crc32(number.encode()) % 36**_CHECK).rjust(_CHECK, "0")


def _base36(number: int) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    text = ""
    while number or not text:
        number, rest = divmod(number, 36)
        text = digits[rest] + text
    return text
