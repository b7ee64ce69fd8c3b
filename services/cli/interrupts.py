"""What Ctrl-C and a polite kill do: end at once, be raised in the work, or wait for its stop."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Generator
from types import FrameType

INTERRUPTED = 128 + signal.SIGINT
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_at_once() -> None:
    """While nothing runs yet, or any more, there is nothing to stop and nothing to say."""
    for number in ENDS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, _end)


def _end(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)


def raise_in_the_work() -> None:
    """From here on there may be something to stop: all of them are a KeyboardInterrupt.

    Does nothing where the process is not ours alone, as in a test.
    """
    if signal.getsignal(signal.SIGINT) is not _end:
        return
    # Exactly this one, since asyncio then cancels its main task instead of breaking its loop.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.unraisablehook = _tell_no_interrupt
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is _end:
            signal.signal(number, _as_ctrl_c)


def _tell_no_interrupt(what: "sys.UnraisableHookArgs") -> None:
    """One more Ctrl-C that strikes where nothing can be raised, in a destructor, is no mistake."""
    if not isinstance(what.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(what)


def _as_ctrl_c(_: int, __: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def first_only() -> Generator[None]:
    """For what asyncio runs: it ends that in order at the first Ctrl-C, and breaks at a second."""
    before = signal.getsignal(signal.SIGINT)

    def act(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGINT, act)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is act:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def undisturbed() -> Generator[None]:
    """A stop is bounded by itself; impatience must not cut it short."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are never raised here
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDS}
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)
