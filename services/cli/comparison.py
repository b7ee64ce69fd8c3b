"""Compares what the database says with what Meta (the simulator) really did, message by message."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from shared.domain.status import Status
from shared.domain.tokens import Token

#: Proof of arrival counts whichever attempt it came from.
ARRIVED = (Status.DELIVERED, Status.READ)


@dataclass(frozen=True, slots=True)
class Row:
    """One recipient as the database knows it at the end."""

    id: int
    attempt: int
    status: Status
    error_code: int | None = None
    reason: str | None = None
    wamid: str | None = None


@dataclass(frozen=True, slots=True)
class Acceptance:
    """One line of the ledger. `acknowledged` are the statuses for which ingest answered 200."""

    token: Token | None
    to: str
    wamid: str
    at: float
    withheld: bool = False
    acknowledged: tuple[Status, ...] = ()
    failed_reported: int | None = None


@dataclass(frozen=True, slots=True)
class Unclear:
    """One request that was answered such that nobody can tell what became of it."""

    token: Token | None
    kind: str
    accepted: bool
    withheld: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ids of the rows that disagree with the ledger, by the way they do.

    `strays` are ids of tokens in the ledger that belong to no row.
    """

    lost: tuple[int, ...] = ()
    doubled: tuple[int, ...] = ()
    wrong_status: tuple[int, ...] = ()
    wrong_wamid: tuple[int, ...] = ()
    unknown_missing: tuple[int, ...] = ()
    unknown_extra: tuple[int, ...] = ()
    strays: tuple[int, ...] = ()

    @property
    def clean(self) -> bool:
        return not any(getattr(self, field.name) for field in fields(self))


def compare(
    rows: Sequence[Row],
    ledger: Sequence[Acceptance],
    unclear: Iterable[Unclear],
    excuses: Collection[int] = (),
) -> Comparison:
    """Hold every row against the ledger.

    `excuses` are the error codes with which the scenario may fail a row that never was accepted. A
    skipped row is no lost one when it says why. Under the policy `hold` an unclear request stays
    unknown if no status comes for it.
    """
    accepted = _by_message(ledger)
    paired = [(row, accepted.get(row.id, [])) for row in rows]
    ids = {row.id for row in rows}
    unknown = {row.id for row in rows if row.status is Status.UNKNOWN}
    withheld = {item.token.message_id for item in unclear if item.token and item.withheld} & ids
    return Comparison(
        lost=tuple(row.id for row, met in paired if _is_lost(row, met, excuses)),
        doubled=_doubled(ledger),
        wrong_status=tuple(row.id for row, met in paired if _has_wrong_status(row, met)),
        wrong_wamid=tuple(row.id for row, met in paired if _has_wrong_wamid(row, met)),
        unknown_missing=tuple(sorted(withheld - unknown)),
        unknown_extra=tuple(sorted(unknown - withheld)),
        strays=tuple(sorted(_message_id(item) for item in ledger if _message_id(item) not in ids)),
    )


def expected_status(row: Row, acceptances: Iterable[Acceptance]) -> Status:
    """The highest status that was delivered for an accepted row: `accepted` if there was none."""
    return max(_evidence(row, acceptances), key=lambda status: status.rank, default=Status.ACCEPTED)


def _evidence(row: Row, acceptances: Iterable[Acceptance]) -> Iterator[Status]:
    for item in acceptances:
        current = item.token is not None and item.token.attempt == row.attempt
        yield from (status for status in item.acknowledged if current or status in ARRIVED)


def _by_message(ledger: Iterable[Acceptance]) -> Mapping[int, list[Acceptance]]:
    found: dict[int, list[Acceptance]] = defaultdict(list)
    for item in ledger:
        found[_message_id(item)].append(item)
    return dict(found)


def _is_lost(row: Row, acceptances: Sequence[Acceptance], excuses: Collection[int]) -> bool:
    """Unknown rows are compared as a set of their own."""
    if row.status is Status.UNKNOWN:
        return False
    if acceptances:
        return row.status.rank < Status.ACCEPTED.rank
    if row.status is Status.FAILED:
        return row.error_code not in excuses
    return row.status is not Status.SKIPPED or row.reason is None


def _has_wrong_status(row: Row, acceptances: Sequence[Acceptance]) -> bool:
    """Rows that were not accepted, or are below it, are for the question what is lost."""
    if row.status is Status.UNKNOWN:
        return any(item.acknowledged for item in acceptances)
    if not acceptances or row.status.rank < Status.ACCEPTED.rank:
        return False
    return row.status is not expected_status(row, acceptances)


def _has_wrong_wamid(row: Row, acceptances: Sequence[Acceptance]) -> bool:
    if row.wamid is None:
        return bool(acceptances) and row.status.rank >= Status.ACCEPTED.rank
    return row.wamid not in {item.wamid for item in acceptances}


def _doubled(ledger: Iterable[Acceptance]) -> tuple[int, ...]:
    """Served twice, whether by one row or by two rows with one number."""
    served: dict[str, list[int]] = defaultdict(list)
    for item in ledger:
        if item.failed_reported is None:
            served[item.to].append(_message_id(item))
    return tuple(sorted({max(ids) for ids in served.values() if len(ids) > 1}))


def _message_id(item: Acceptance) -> int:
    """Zero, the id of no row, for a request that carried no token of ours."""
    return item.token.message_id if item.token else 0
