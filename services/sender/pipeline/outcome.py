"""What became of one attempt: a value, never an exception."""

from dataclasses import dataclass
from datetime import timedelta

from shared.whatsapp.errors import Effect


@dataclass(frozen=True, slots=True)
class Accepted:
    """Meta answered 200 with an id."""

    wamid: str
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Throttled:
    """Nothing was judged: the row goes back to pending and nothing is spent.

    `sent_nothing` says that no byte of a request reached anyone. `pause` is how long Meta wants the
    number to wait: None where it does not say, or until an operator resumes it.
    """

    reason: str
    code: int | None = None
    effect: Effect = Effect.NONE
    details: str | None = None
    fbtrace_id: str | None = None
    sent_nothing: bool = False
    pause: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """Judged and refused for now. `later` is the least wait that the code asks for.

    `tries`: how many attempts may end in this code, whatever the campaign allows.
    """

    code: int | None
    reason: str
    later: timedelta | None = None
    details: str | None = None
    fbtrace_id: str | None = None
    tries: int | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """Final for this recipient. `concluded` when we decided it without Meta."""

    code: int | None
    reason: str
    details: str | None = None
    fbtrace_id: str | None = None
    effect: Effect = Effect.NONE
    concluded: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """May have been sent: only evidence or the campaign's policy settles it."""

    reason: str
    code: int | None = None
    details: str | None = None
    fbtrace_id: str | None = None


Outcome = Accepted | Throttled | Retry | Failed | Unknown
