"""The demo's scenario: everything that goes wrong between a sender and Meta, in measure."""

from typing import Any

# Every hash of a small audience falls a little beside its share: 1 % must be met all the same.
ONE_PERCENT = 0.014
PAIR_LIMIT = 131056
UNDELIVERABLE = 131026

#: What may have become of a recipient that Meta never accepted, or took back.
EXCUSES = (UNDELIVERABLE,)
#: What the closing report calls by name, each met by at least 1 % of 10,000 recipients.
NAMED = ("130429", str(PAIR_LIMIT), str(UNDELIVERABLE), "html_502", "stall")


def stormy(seed: int, recipients: int, rate: int) -> dict[str, Any]:
    """A scenario for a campaign of so many recipients at so many per second."""
    return {
        "seed": seed,
        "latency": {"median_ms": 300, "sigma": 0.25},
        # Meta counts at its own door, and no way there is equally long for all.
        "throughput": round(rate * 1.05) + 1,
        "throttle_episodes": _episodes(recipients / rate),
        "errors": [{"code": PAIR_LIMIT, "share": ONE_PERCENT}],
        "ambiguous": [
            {"kind": "html_502", "share": ONE_PERCENT / 2, "accepted": True, "withhold": 0.1},
            {"kind": "html_502", "share": ONE_PERCENT / 2, "accepted": False},
            {"kind": "stall", "share": ONE_PERCENT, "accepted": True, "withhold": 0.1},
            {"kind": "reset", "share": 0.002, "accepted": True, "withhold": 0.1},
            {"kind": "empty_200", "share": 0.002, "accepted": True, "withhold": 0.1},
        ],
        "webhooks": _webhooks(),
    }


def _episodes(seconds: float) -> dict[str, float]:
    """Two in the main run; whatever is on the wire when one begins is refused.

    Each costs the sender a second and 15 % of its pace, of which it wins back a half per cent a
    second: more of them would show the brake and nothing else. A run of two seconds may meet none.
    """
    return {"every_s": min(13.0, max(2.5, 0.52 * seconds)), "for_s": 0.4}


def _webhooks() -> dict[str, Any]:
    return {
        "delay_s": {"sent": 0.2, "delivered": 0.6, "read": 2.0},
        "jitter": 0.5,
        "read_share": 0.4,
        "failed": [
            {"code": UNDELIVERABLE, "share": ONE_PERCENT / 2},
            {"code": UNDELIVERABLE, "share": ONE_PERCENT / 2, "after_sent": True},
        ],
        "lost_share": 0.02,
        "repeated_share": 0.05,
        "reorder_share": 0.25,
        "early_share": 0.01,
        "batch": 40,
        "window_ms": 50,
    }
