"""Public ids: they sort by the time at which they were made."""

import secrets
import time
from uuid import UUID


def uuid7() -> UUID:
    """A UUID of version 7: 48 bits of milliseconds, the rest random."""
    milliseconds = time.time_ns() // 1_000_000
    rest = secrets.randbits(74)
    value = (milliseconds & ((1 << 48) - 1)) << 80
    value |= 0x7 << 76 | (rest >> 62) << 64 | 0b10 << 62 | rest & ((1 << 62) - 1)
    return UUID(int=value)
