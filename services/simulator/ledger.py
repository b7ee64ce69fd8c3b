"""What the simulated Meta really did: every acceptance, every unclear reply, every count."""

import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, TypeVar

import msgspec

from services.simulator.limits import LastSecond
from services.simulator.replies import wamid
from services.simulator.scenario import AmbiguousKind

_LINES_PER_CHUNK = 500
_encode = msgspec.json.Encoder().encode
_Row = TypeVar("_Row")

#: In the order of a life; the place is the bit in `Acceptance.acknowledged`.
STATUSES = ("sent", "failed", "delivered", "read")


class Acceptance(msgspec.Struct, gc=False):
    """One accepted message. Untracked by the garbage collector: there may be a million.

    `failure` is the code it is to fail with, `failed_reported` whether a webhook has said so.
    """

    serial: int
    number: str
    to: str
    token: str | None
    at: float
    category: str
    answer: str
    withheld: bool
    failure: int | None
    failed_reported: bool = False
    acknowledged: int = 0

    @property
    def wamid(self) -> str:
        """Made anew each time: cheaper than a million kept texts."""
        return wamid(self.to, self.serial)

    def acknowledge(self, status: str) -> None:
        """A webhook with this status got its 200."""
        self.acknowledged |= 1 << STATUSES.index(status)

    def row(self) -> dict[str, Any]:
        """What readers of the ledger see."""
        names = [name for bit, name in enumerate(STATUSES) if self.acknowledged >> bit & 1]
        return {
            "wamid": self.wamid,
            "phone_number_id": self.number,
            "to": self.to,
            "token": self.token,
            "at": self.at,
            "answer": self.answer,
            "withheld": self.withheld,
            "acknowledged": names,
            "failed_reported": self.failure if self.failed_reported else None,
        }


class Unclear(msgspec.Struct, gc=False):
    """One request whose reply told nothing. `withheld`: no status will ever come for it."""

    token: str | None
    to: str
    kind: AmbiguousKind
    accepted: bool
    withheld: bool
    at: float


class Ledger:
    """Grows until a new one takes its place; ids of two ledgers never meet."""

    def __init__(self) -> None:
        self.acceptances: list[Acceptance] = []
        self.unclear: list[Unclear] = []
        self.refused: Counter[int] = Counter()
        self.answers: Counter[str] = Counter()
        self._serials = count(secrets.randbits(31) << 40)
        self._requested: dict[str, LastSecond] = {}
        self._accepted: dict[str, LastSecond] = {}

    def next_serial(self) -> int:
        """Number of the next acceptance."""
        return next(self._serials)

    def request(self, number: str, now: float) -> None:
        """A send arrived, whatever becomes of it. `now` is of the steady clock."""
        self._requested.setdefault(number, LastSecond()).add(now)

    def accept(self, acceptance: Acceptance, now: float) -> None:
        """A message was accepted."""
        self.acceptances.append(acceptance)
        self._accepted.setdefault(acceptance.number, LastSecond()).add(now)

    def refuse(self, code: int) -> None:
        """A send got this error."""
        self.refused[code] += 1

    def stats(self) -> dict[str, Any]:
        """The counts, and the peaks of half-open one-second windows per number."""
        return {
            "accepted": len(self.acceptances),
            "refused": {str(code): times for code, times in sorted(self.refused.items())},
            "answers": dict(sorted(self.answers.items())),
            "most_accepted_in_one_second": _peaks(self._accepted),
            "max_requests_in_one_second": _peaks(self._requested),
        }

    def acceptance_lines(self) -> Iterator[bytes]:
        """NDJSON of every acceptance."""
        return _chunks(self.acceptances, Acceptance.row)

    def unclear_lines(self) -> Iterator[bytes]:
        """NDJSON of every unclear reply."""
        return _chunks(self.unclear, msgspec.structs.asdict)


def _peaks(seconds: dict[str, LastSecond]) -> dict[str, int]:
    return {number: second.most for number, second in seconds.items()}


def _chunks(rows: list[_Row], shown: Callable[[_Row], dict[str, Any]]) -> Iterator[bytes]:
    """As many rows as there are now, some hundred lines at a time."""
    for start in range(0, len(rows), _LINES_PER_CHUNK):
        part = rows[start : start + _LINES_PER_CHUNK]
        yield b"".join(_encode(shown(row)) + b"\n" for row in part)
