"""The life of a message, in the order in which Meta's evidence may move it."""

from enum import StrEnum


class Status(StrEnum):
    """One recipient's state. Declaration order is the order of the enum in Postgres."""

    SKIPPED = "skipped"
    PENDING = "pending"
    CLAIMED = "claimed"
    UNKNOWN = "unknown"
    ACCEPTED = "accepted"
    SENT = "sent"
    FAILED = "failed"
    DELIVERED = "delivered"
    READ = "read"

    @property
    def rank(self) -> int:
        """Place in the life of a message: a webhook may only raise it."""
        return RANKS[self]


RANKS = {status: rank for rank, status in enumerate(Status)}
