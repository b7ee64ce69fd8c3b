"""Ends of a request that HTTP has no words for: a reset connection, and silence."""

import asyncio
import contextlib
import socket
import struct

from starlette.types import Receive, Send

# Enough for any client's timeout; a bound all the same.
_SILENCE_S = 900.0
_GONE_S = 5.0
_RST_ON_CLOSE = struct.pack("ii", 1, 0)


async def reset(receive: Receive, send: Send) -> None:
    """Close the client's connection with an RST.

    ASGI has no way to say this, so it reaches for the transport behind uvicorn's `send`.
    """
    transport: asyncio.Transport = send.__self__.transport  # type: ignore[attr-defined]  # uvicorn's
    if transport.is_closing():
        return  # the client was faster
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)
    transport.abort()
    await _gone(receive, _GONE_S)


async def stall(receive: Receive, closing: asyncio.Event, seconds: float | None) -> bool:
    """Say nothing for so long. True if the client is still there to be answered then."""
    silence = asyncio.ensure_future(_gone(receive, seconds or _SILENCE_S))
    end = asyncio.ensure_future(closing.wait())
    done, _ = await asyncio.wait((silence, end), return_when=asyncio.FIRST_COMPLETED)
    for task in (silence, end):
        task.cancel()
    return silence in done and not silence.result()


async def _gone(receive: Receive, seconds: float) -> bool:
    """Whether the client hangs up within so many seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while (await receive())["type"] != "http.disconnect":
                pass
            return True
    return False
