"""The schema: every table, with the reasons for its shape beside it."""

from shared.db.tables.control import (
    api_keys,
    campaign_events,
    campaigns,
    idempotency_keys,
    installation,
    numbers,
    opt_outs,
    portfolios,
    upload_rejects,
    uploads,
    webhook_heartbeats,
)
from shared.db.tables.conventions import MESSAGE_STATUS, metadata
from shared.db.tables.hot import (
    attempts,
    campaign_counters,
    counter_deltas,
    live_messages,
    messages,
    recipients,
)
from shared.db.tables.inbox import webhook_events, webhook_groups, webhook_pending

__all__ = [
    "MESSAGE_STATUS",
    "api_keys",
    "attempts",
    "campaign_counters",
    "campaign_events",
    "campaigns",
    "counter_deltas",
    "idempotency_keys",
    "installation",
    "live_messages",
    "messages",
    "metadata",
    "numbers",
    "opt_outs",
    "portfolios",
    "recipients",
    "upload_rejects",
    "uploads",
    "webhook_events",
    "webhook_groups",
    "webhook_heartbeats",
    "webhook_pending",
]
