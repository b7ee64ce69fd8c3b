"""Times as a person on this machine reads them."""

from datetime import datetime
from typing import Any

import click
from typing_extensions import override

_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def duration(seconds: float) -> str:
    """In its two largest units: `2 min 36 s`."""
    left = max(0, round(seconds))
    parts: list[str] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if parts or count:
            parts.append(f"{count} {unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 ")) or "0 s"


def local(moment: str) -> str:
    """A time of the API on this machine's clock."""
    return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def seconds_until(moment: str) -> float:
    at = datetime.fromisoformat(moment)
    return (at - datetime.now(at.tzinfo)).total_seconds()


class Moment(click.ParamType[str]):
    """RFC 3339. A time without a zone would mean something else on each machine."""

    name = "time"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no time such as 2027-05-03T08:00:00+02:00", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"{value!r} has no zone: say Z or one such as +02:00", param, ctx)
        return moment.isoformat()
