"""What Meta posted: stored before it is answered, applied later."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
)

from shared.db.tables.conventions import NOW, TIME, metadata

# One row per group commit: compressed bodies with their signatures. By day, never updated,
# pruned by dropping the day.
webhook_groups = Table(
    "webhook_groups",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("received_at", TIME, primary_key=True, server_default=NOW),
    Column("webhooks", Integer, nullable=False),
    Column("bodies", LargeBinary, nullable=False),
    postgresql_partition_by="RANGE (received_at)",
)

# What is still to be done with a group; deleted by the transaction that does it.
webhook_pending = Table(
    "webhook_pending",
    metadata,
    Column("purpose", Text, primary_key=True),
    Column("group_id", BigInteger, primary_key=True, autoincrement=False),
    Column("received_at", TIME, nullable=False),
    CheckConstraint("purpose IN ('apply','relay')", name="purpose"),
)

# Single events set aside: `poison` cannot be applied, `parked` waits for its wamid, `foreign` is
# another tool's traffic. `body` is a webhook of its own, so that it can be replayed.
webhook_events = Table(
    "webhook_events",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("received_at", TIME, nullable=False),
    Column("next_try_at", TIME),
    Column("state", Text, nullable=False),
    Column("error", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    CheckConstraint("state IN ('poison','parked','foreign')", name="state"),
    Index(None, "state", "next_try_at"),
)
