"""A gzip body is unpacked in bounded steps, and a bomb is refused while it is small."""

import asyncio
import gzip
import os
from collections.abc import AsyncGenerator

import pytest

from services.sender.audience.files import MEMBERS, RATIO_LIMIT, STEP, gunzip
from services.sender.audience.records import FileRefused


async def arriving(data: bytes, size: int = 1000) -> AsyncGenerator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def unpack(data: bytes, size: int = 1000) -> bytes:
    steps = [step async for step in gunzip(arriving(data, size))]
    assert all(0 < len(step) <= STEP for step in steps)
    return b"".join(steps)


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 24])
async def test_it_is_what_was_packed(size):
    text = os.urandom(3000) + b"phone,name\n" * 3000
    assert await unpack(gzip.compress(text), size) == text


@pytest.mark.parametrize("length", [0, STEP - 1, STEP, STEP + 1, 4 * STEP, 4 * STEP + 100])
async def test_no_length_loses_an_end(length):
    text = (os.urandom(2000) * 400)[:length]  # long matches: output is left when input is not
    assert await unpack(gzip.compress(text), 1 << 24) == text


@pytest.mark.parametrize("size", [1, 50, 1 << 20])
async def test_members_in_a_row_are_one_file(size):
    parts = [b"phone\n", b"", b"+12025550123\n" * 50]
    assert await unpack(b"".join(map(gzip.compress, parts)), size) == b"".join(parts)


async def test_many_empty_members_let_others_run():
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(count())
    packed = gzip.compress(b"") * 5000 + gzip.compress(b"phone\n")
    assert await unpack(packed, 1 << 16) == b"phone\n"
    others.cancel()
    assert turns >= 5000 // MEMBERS


@pytest.mark.parametrize("size", [1, 50, 1 << 20])
@pytest.mark.parametrize("padding", [1, 512])
async def test_zeros_may_fill_the_last_block(size, padding):
    packed = gzip.compress(b"phone\n") + bytes(padding)
    assert await unpack(packed, size) == b"phone\n"
    assert await unpack(packed + gzip.compress(b"+12025550123\n"), size) == b"phone\n+12025550123\n"


async def test_an_empty_body_is_an_empty_file():
    assert await unpack(b"") == b""


async def test_a_bomb_is_refused_early():
    bomb = gzip.compress(b"x" * (64 << 20))
    taken: list[int] = []

    async def take() -> None:
        async for step in gunzip(arriving(bomb)):
            taken.append(len(step))  # noqa: PERF401  # those before the refusal count

    with pytest.raises(FileRefused, match="200 times"):
        await take()
    assert sum(taken) <= max(STEP, RATIO_LIMIT * 2000)


async def test_a_small_file_may_repeat_itself():
    text = b"\n" * (STEP - 1)
    packed = gzip.compress(text)
    assert len(text) > RATIO_LIMIT * len(packed)
    assert await unpack(packed) == text


@pytest.mark.parametrize("cut", [1, 5, 11, 40])
async def test_a_body_that_ends_early_is_refused(cut):
    with pytest.raises(FileRefused, match="ends early"):
        await unpack(gzip.compress(os.urandom(1000))[:-cut])


@pytest.mark.parametrize(
    "data",
    [
        b"phone\n+12025550123\n",
        gzip.compress(b"x", mtime=0) + b"rubbish",
        b"\0" * 9,
        b"\x1f\x8b\x08rubbish" * 9,
    ],
)
async def test_what_gzip_did_not_write_is_refused(data):
    with pytest.raises(FileRefused, match="not what gzip writes"):
        await unpack(data)


async def test_a_wrong_checksum_is_refused():
    packed = bytearray(gzip.compress(b"phone\n"))
    packed[-6] ^= 1
    with pytest.raises(FileRefused, match="not what gzip writes"):
        await unpack(bytes(packed))
