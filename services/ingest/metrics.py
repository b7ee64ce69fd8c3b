"""Every metric of ingest."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

_SIZES = (1, 3, 10, 30, 100, 300, 1000, 3000, 10000)

WEBHOOKS: Final = Counter("headrace_ingest_webhooks", "Webhooks by what became of them", ["result"])
GROUP_SIZE: Final = Histogram(
    "headrace_ingest_group_size", "Webhooks stored by one insert", buckets=_SIZES
)
EVENTS: Final = Counter("headrace_ingest_events", "Events by what became of them", ["result"])
APPLY_SIZE: Final = Histogram(
    "headrace_ingest_apply_batch_size", "Status events applied by one transaction", buckets=_SIZES
)
APPLY_SECONDS: Final = Histogram("headrace_ingest_apply_seconds", "Time of one apply transaction")
INBOX_DEPTH: Final = Gauge("headrace_ingest_inbox_groups", "Stored groups that wait to be applied")
LAG_SECONDS: Final = Gauge("headrace_ingest_lag_seconds", "Age of the oldest group that waits")
