"""Many events to one evidence per message: a message gets up to four statuses, often at once."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from services.ingest.parse import StatusEvent
from shared.domain.status import Status
from shared.whatsapp.errors import OutcomeKind, rule_for

#: What an unlisted code of a failed status counts as: final for its recipient.
HTTP_STATUS = 400


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
        """After what time Meta asks to try again."""
        if self.code is None or self.status is not Status.FAILED:
            return None
        rule = rule_for(self.code, HTTP_STATUS)
        return rule.later if rule.outcome is OutcomeKind.RETRY else None


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
