"""Acts on the signals that end a process before the web server does."""

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType


def on_terminate(act: Callable[[], None]) -> None:
    """Call `act` in the running loop at SIGTERM or SIGINT; the server's own handling follows.

    The server waits for requests under way before it tells its app to stop. What must stop at once
    cannot wait for that.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        _chain(number, loop, act)


def _chain(number: int, loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    after = signal.getsignal(number)

    def both(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(act)
        if callable(after):
            after(number, frame)

    signal.signal(number, both)
