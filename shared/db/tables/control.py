"""What people set and ask for: keys, numbers, campaigns, uploads, opt-outs."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    Identity,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from shared.db.tables.conventions import EMPTY, NOW, TIME, made, metadata

# One row. The id is part of every token; `halted` is the red button that every claim looks at.
installation = Table(
    "installation",
    metadata,
    Column("single", Boolean, primary_key=True, server_default=text("true")),
    Column("id", Text, nullable=False),
    Column("halted", Boolean, nullable=False, server_default=text("false")),
    CheckConstraint("single", name="one_row"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("name", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("scopes", ARRAY(Text), nullable=False),
    made(),
    Column("last_used_at", TIME),
    Column("revoked_at", TIME),
)

# Written in the transaction of the effect it stands for. `status` is null while that one runs.
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("api_key_id", BigInteger, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_digest", LargeBinary, nullable=False),
    Column("status", SmallInteger),
    Column("body", JSONB),
    made(),
    Index(None, "created_at"),
)

portfolios = Table(
    "portfolios",
    metadata,
    Column("id", Text, primary_key=True),
    Column("daily_recipient_limit", Integer),
    made(),
)

numbers = Table(
    "numbers",
    metadata,
    Column("phone_number_id", Text, primary_key=True),
    Column("waba_id", Text, nullable=False),
    Column("portfolio_id", Text),
    Column("rate", Integer, nullable=False, server_default=text("80")),
    Column("headroom", Double, nullable=False, server_default=text("0.2")),
    Column("token_name", Text),
    Column("state", Text, nullable=False, server_default=text("'active'")),
    Column("paused_reason", Text),
    Column("paused_until", TIME),
    made(),
    CheckConstraint("rate > 0", name="rate"),
    CheckConstraint("headroom >= 0 AND headroom < 1", name="headroom"),
    CheckConstraint("state IN ('active', 'paused')", name="state"),
)

# When a webhook of the number was last received and applied: silence settles no unknowns. The row
# of the empty number is ingest's own: since when it has been there without a gap.
webhook_heartbeats = Table(
    "webhook_heartbeats",
    metadata,
    Column("phone_number_id", Text, primary_key=True),
    Column("received_at", TIME, nullable=False),
    Column("steady_since", TIME, nullable=False, server_default=NOW),
)

campaigns = Table(
    "campaigns",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("public_id", Uuid, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("phone_number_id", Text, nullable=False),
    Column("state", Text, nullable=False, server_default=text("'draft'")),
    Column("pause_reason", Text),
    Column("audience", Text, nullable=False, server_default=text("'open'")),
    Column("keep_open", Boolean, nullable=False, server_default=text("false")),
    Column("template", JSONB, nullable=False),
    Column("endpoint", Text, nullable=False, server_default=text("'messages'")),
    Column("unknown_policy", Text, nullable=False, server_default=text("'hold'")),
    Column("unknown_window_s", Integer, nullable=False, server_default=text("3600")),
    Column("max_attempts", SmallInteger, nullable=False, server_default=text("5")),
    Column("weight", Integer, nullable=False, server_default=text("1")),
    Column("default_country", Text),
    Column("send_window", JSONB),
    Column("breaker", JSONB),
    Column("labels", JSONB, nullable=False, server_default=EMPTY),
    Column("expires_at", TIME),
    Column("start_at", TIME),
    made(),
    Column("started_at", TIME),
    Column("ended_at", TIME),
    # `live` is no state of a campaign: such a row counts the live messages of its number, and
    # nothing that lists, claims, starts or ends campaigns finds it.
    CheckConstraint(
        "state IN ('draft','scheduled','running','paused','completed','cancelled','live')",
        name="state",
    ),
    CheckConstraint("(state = 'paused') = (pause_reason IS NOT NULL)", name="pause_reason"),
    CheckConstraint("audience IN ('open','closed')", name="audience"),
    CheckConstraint("unknown_policy IN ('hold','resend')", name="unknown_policy"),
    Index(None, "state", "phone_number_id"),
    Index(
        "campaigns_live_key",
        "phone_number_id",
        unique=True,
        postgresql_where=text("state = 'live'"),
    ),
)

campaign_events = Table(
    "campaign_events",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("campaign_id", BigInteger, nullable=False),
    Column("at", TIME, nullable=False, server_default=NOW),
    Column("kind", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("details", JSONB, nullable=False, server_default=EMPTY),
    Index(None, "campaign_id", "id"),
)

uploads = Table(
    "uploads",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("campaign_id", BigInteger, nullable=False),
    Column("state", Text, nullable=False, server_default=text("'running'")),
    Column("rows", BigInteger, nullable=False, server_default=text("0")),
    Column("accepted", BigInteger, nullable=False, server_default=text("0")),
    Column("duplicate", BigInteger, nullable=False, server_default=text("0")),
    Column("invalid", BigInteger, nullable=False, server_default=text("0")),
    Column("error", Text),
    Column("started_at", TIME, nullable=False, server_default=NOW),
    Column("heartbeat_at", TIME, nullable=False, server_default=NOW),
    Column("finished_at", TIME),
    CheckConstraint("state IN ('running','done','failed')", name="state"),
    Index(None, "campaign_id", "id"),
)

upload_rejects = Table(
    "upload_rejects",
    metadata,
    Column("upload_id", BigInteger, primary_key=True),
    Column("row_number", BigInteger, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("raw", Text, nullable=False),
)

# `person` is the number's identity: variants of one number (Mexico's 1, Argentina's 9) share it.
opt_outs = Table(
    "opt_outs",
    metadata,
    Column("person", Text, primary_key=True),
    Column("source", Text, nullable=False),
    made(),
)
