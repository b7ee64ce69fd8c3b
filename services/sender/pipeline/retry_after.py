"""How long Meta asks to wait, from the headers of a reply. Never raises, whatever they hold."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

# Whoever asks for longer is asked again. The bucket takes no longer pause.
LONGEST = timedelta(minutes=15)
_NUMBER = re.compile(r"-?[0-9]{1,12}(\.[0-9]{0,12})?")
_USAGE = "x-business-use-case-usage"


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """What `Retry-After` asks for, as seconds or as a date; None where it says nothing."""
    text = headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(text):
        return _bounded(timedelta(seconds=float(text)))
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return _bounded((at if at.tzinfo else at.replace(tzinfo=UTC)) - now)


def regain_after(headers: Mapping[str, str]) -> timedelta | None:
    """How long the account's call limit lasts, as Meta estimates it: the longest of its minutes."""
    try:
        usage = json.loads(headers.get(_USAGE, ""))
    except (ValueError, RecursionError):
        return None
    minutes = [_minutes(one) for entries in _values(usage) for one in _list(entries)]
    longest = max(minutes, default=0)
    return timedelta(minutes=min(longest, 60)) if longest > 0 else None


def _minutes(entry: Any) -> float:
    found = entry.get("estimated_time_to_regain_access") if isinstance(entry, dict) else None
    return found if isinstance(found, int | float) and not isinstance(found, bool) else 0


def _values(usage: Any) -> list[Any]:
    return list(usage.values()) if isinstance(usage, dict) else []


def _list(entries: Any) -> list[Any]:
    return entries if isinstance(entries, list) else []


def _bounded(wait: timedelta) -> timedelta:
    return max(timedelta(0), min(wait, LONGEST))
