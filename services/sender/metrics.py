"""Every metric of the sender. Labels are ids of numbers and words of ours: no personal data."""

from prometheus_client import Counter, Gauge, Histogram

OUTCOMES = Counter(
    "headrace_send_outcomes",
    "Sends by outcome and Meta's code (0: none)",
    ["phone_number_id", "outcome", "code"],
)
SEND_SECONDS = Histogram(
    "headrace_send_seconds",
    "Time from the slot to Meta's reply",
    ["phone_number_id"],
    buckets=(0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10, 30),
)
LIVE_WAIT_SECONDS = Histogram(
    "headrace_live_wait_seconds",
    "How long live messages wait for their permit",
    ["phone_number_id"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
)
IN_FLIGHT = Gauge("headrace_sends_in_flight", "Requests on the wire", ["phone_number_id"])
SLOTS = Counter(
    "headrace_slots",
    "Booked slots: used, late (void), or empty (nothing was due)",
    ["phone_number_id", "use"],
)
PACE = Gauge(
    "headrace_pace_ratio", "Effective rate as a share of the configured one", ["phone_number_id"]
)
CLAIM_SECONDS = Histogram(
    "headrace_claim_seconds",
    "Duration of a claim",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3),
)
CLAIMED = Counter("headrace_claimed_rows", "Rows claimed", ["phone_number_id"])
RETURNED = Counter(
    "headrace_returned_rows", "Claimed rows handed back unsent", ["phone_number_id", "why"]
)
FAULTS = Counter("headrace_faults", "Statements or calls that failed", ["part", "error"])
RECORD_BATCH = Histogram(
    "headrace_record_batch_rows", "Results per statement", buckets=(1, 5, 10, 20, 50, 100, 200, 500)
)
RECORD_WAITING = Gauge("headrace_record_waiting", "Results not yet written")
UNMATCHED = Counter("headrace_unmatched_results", "Results whose row had moved on")
PRUNED = Counter("headrace_pruned", "Rows, or days of webhooks, pruned for their age", ["kind"])
