"""What the send rate writes to. No foreign keys: one would lock its parent on every insert."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from shared.db.tables.conventions import EMPTY, MESSAGE_STATUS, NOW, TIME, made, metadata

# The audience: written once at upload, never changed.
recipients = Table(
    "recipients",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("campaign_id", BigInteger, nullable=False),
    Column("upload_id", BigInteger, nullable=False),
    Column("person", Text, nullable=False),
    Column("phone", Text),
    Column("user_id", Text),
    Column("external_id", Text),
    Column("parameters", JSONB, nullable=False, server_default=EMPTY),
    Column("metadata", JSONB),
    # Person first: it serves the search for a person over all campaigns too.
    UniqueConstraint("person", "campaign_id"),
    Index(
        "recipients_campaign_id_external_id_key",
        "campaign_id",
        "external_id",
        unique=True,
        postgresql_where=text("external_id IS NOT NULL"),
    ),
    CheckConstraint("phone IS NOT NULL OR user_id IS NOT NULL", name="address"),
)

# One narrow row per recipient, same id. `status` is in no index and no predicate, so the steps
# accepted → sent → delivered → read stay on their page; columns are ordered for alignment.
messages = Table(
    "messages",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("campaign_id", BigInteger, nullable=False),
    Column("due_at", TIME),
    Column("claimed_at", TIME),
    Column("accepted_at", TIME),
    Column("sent_at", TIME),
    Column("delivered_at", TIME),
    Column("read_at", TIME),
    Column("failed_at", TIME),
    Column("status", MESSAGE_STATUS, nullable=False, server_default=text("'pending'")),
    Column("error_code", Integer),
    Column("attempt", Integer, nullable=False, server_default=text("1")),
    Column("spent", SmallInteger, nullable=False, server_default=text("0")),
    Column("concluded", Boolean, nullable=False, server_default=text("false")),
    Column("wamid", Text),
    Column("reason", Text),
    CheckConstraint("(status = 'pending') = (due_at IS NOT NULL)", name="due"),
    CheckConstraint("(status IN ('claimed','unknown')) = (claimed_at IS NOT NULL)", name="claimed"),
    Index("messages_due_idx", "campaign_id", "due_at", postgresql_where=text("due_at IS NOT NULL")),
    Index(
        "messages_claimed_idx",
        "campaign_id",
        "claimed_at",
        postgresql_where=text("claimed_at IS NOT NULL"),
    ),
    Index(
        "messages_error_idx",
        "campaign_id",
        "error_code",
        "id",
        postgresql_where=text("error_code IS NOT NULL"),
    ),
    Index("messages_list_idx", "campaign_id", "id"),
    Index("messages_wamid_idx", "wamid", postgresql_using="hash"),
    postgresql_with={"fillfactor": "55"},
)

# Whom a live message went to: its row in `messages` has the same id, from the sequence of
# `recipients`. A table of its own, since a person gets many of them. What it said is not kept:
# nothing sends it again.
live_messages = Table(
    "live_messages",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    made(),
    Column("phone_number_id", Text, nullable=False),
    Column("person", Text, nullable=False),
    Column("phone", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Index(None, "person"),
)

# Attempts that did not end accepted, or that their row left behind. A clean send writes nothing.
attempts = Table(
    "attempts",
    metadata,
    Column("message_id", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("recorded_at", TIME, nullable=False, server_default=NOW),
    Column("evidence_at", TIME),
    Column("evidence", MESSAGE_STATUS),
    Column("error_code", Integer),
    Column("outcome", Text, nullable=False),
    Column("wamid", Text),
    Column("details", Text),
    Column("fbtrace_id", Text),
    Index("attempts_wamid_idx", "wamid", postgresql_using="hash"),
)

# What changed, inserted with the rows; folded into `campaign_counters` by a loop. Appends never
# wait for each other. `error_code` 0 stands for none.
counter_deltas = Table(
    "counter_deltas",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("campaign_id", BigInteger, nullable=False),
    Column("minute", TIME, nullable=False),
    Column("status", MESSAGE_STATUS, nullable=False),
    Column("error_code", Integer, nullable=False),
    Column("entered", Integer, nullable=False),
    Column("departed", Integer, nullable=False),
)

campaign_counters = Table(
    "campaign_counters",
    metadata,
    Column("campaign_id", BigInteger, primary_key=True, autoincrement=False),
    Column("minute", TIME, primary_key=True),
    Column("status", MESSAGE_STATUS, primary_key=True),
    Column("error_code", Integer, primary_key=True, autoincrement=False),
    Column("entered", BigInteger, nullable=False),
    Column("departed", BigInteger, nullable=False),
)
