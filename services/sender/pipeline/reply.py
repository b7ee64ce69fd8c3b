"""What a send ended in on the wire, before anybody asks what it means."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Reason(StrEnum):
    """Why there is no reply; static words, so that no URL, token or body can get into a log."""

    BAD_REQUEST = "bad_request"
    DNS = "dns"
    REFUSED = "refused"
    TLS = "tls"
    CONNECT = "connect"
    CONNECT_TIMEOUT = "connect_timeout"
    POOL_TIMEOUT = "pool_timeout"
    STALE = "stale"
    READ_TIMEOUT = "read_timeout"
    DISCONNECTED = "disconnected"
    RESET = "reset"
    GARBLED = "garbled"
    TOO_LARGE = "too_large"
    CANCELLED = "cancelled"
    UNEXPECTED = "unexpected"


@dataclass(frozen=True, slots=True)
class Replied:
    """A whole HTTP response came back, whatever it says."""

    http_status: int
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class NotSent:
    """No byte of the request left: the same message may be sent again."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Lost:
    """The request may have left, and nobody knows what became of it."""

    reason: Reason


Reply = Replied | NotSent | Lost
