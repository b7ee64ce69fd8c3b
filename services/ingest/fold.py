"""Many events to one evidence per message: a message gets up to four statuses, often at once."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from services.ingest.parse import StatusEvent
from shared.domain.status import Status
from shared.whatsapp.errors import MetaError, OutcomeKind, rule_for_webhook


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a batch says about one attempt: its highest status and the time of each."""

    message_id: int
    attempt: int
    wamid: str = field(repr=False)
    status: Status
    times: dict[Status, datetime]
    code: int | None
    details: str | None = field(repr=False)

    @property
    def later(self) -> timedelta | None:
        """After what time to try again; None for never, 0 where Meta names no time."""
        rule = self._rule
        if rule is None or rule.outcome not in (OutcomeKind.RETRY, OutcomeKind.THROTTLED):
            return None
        return rule.later or timedelta(0)

    @property
    def untouched(self) -> bool:
        """Whether it failed for no fault of its own, in a stop, so that nothing is spent."""
        return self._rule is not None and self._rule.outcome is OutcomeKind.THROTTLED

    @property
    def tries(self) -> int | None:
        """How many attempts may end in this code."""
        return self._rule.tries if self._rule else None

    @property
    def _rule(self) -> MetaError | None:
        if self.code is None or self.status is not Status.FAILED:
            return None
        return rule_for_webhook(self.code)


def fold(events: Iterable[StatusEvent]) -> list[list[Evidence]]:
    """Evidence in rounds, one per message in each, earlier attempts first.

    The wamid is part of the key: two of them for one attempt are two senders with one token, and
    the row decides which of the two it is.
    """
    groups: dict[tuple[int, int, str], list[StatusEvent]] = {}
    for event in events:
        if event.token:
            key = (event.token.message_id, event.token.attempt, event.wamid)
            groups.setdefault(key, []).append(event)
    return _rounds(_merge(*key, groups[key]) for key in sorted(groups, key=lambda key: key[:2]))


def _merge(message_id: int, attempt: int, wamid: str, events: list[StatusEvent]) -> Evidence:
    # The earliest of each status: repetitions and their order change nothing.
    times: dict[Status, datetime] = {}
    for event in events:
        times[event.status] = min(event.at, times.get(event.status, event.at))
    failures = [event for event in events if event.status is Status.FAILED]
    first = min(failures, key=lambda event: (event.at, event.code or 0), default=None)
    return Evidence(
        message_id=message_id,
        attempt=attempt,
        wamid=wamid,
        status=max(times, key=lambda status: status.rank),
        times=times,
        code=first.code if first else None,
        details=first.details if first else None,
    )


def _rounds(evidence: Iterable[Evidence]) -> list[list[Evidence]]:
    rounds: list[list[Evidence]] = []
    seen: Counter[int] = Counter()
    for one in evidence:
        if seen[one.message_id] == len(rounds):
            rounds.append([])
        rounds[seen[one.message_id]].append(one)
        seen[one.message_id] += 1
    return rounds
