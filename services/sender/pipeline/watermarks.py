"""Where each campaign's next claim starts to look, so that claims stay flat while rows finish."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

BEGINNING = datetime.min.replace(tzinfo=UTC)
#: Whatever lies below a watermark (another process gave it back) is found within this time.
RESCAN_S = 5.0
# A look from the beginning may have to pass by millions of entries of finished rows that an open
# snapshot keeps: it may take this part of the time.
_BUSY = 0.05


@dataclass(frozen=True, slots=True)
class Look:
    """A campaign's first due row, looked for from `start` on; None where nothing is due."""

    campaign_id: int
    start: datetime
    due_at: datetime | None


class Watermarks:
    """Per process: below a campaign's mark nothing was due when it was last looked at.

    Only the roster's probe looks from the beginning; a claim starts at what the probe has found,
    or at the row that was claimed last.
    """

    def __init__(self) -> None:
        self._marks: dict[int, datetime] = {}
        self._rescan_at: dict[int, float] = {}

    def of(self, campaign_id: int) -> datetime:
        """Where a claim starts."""
        return self._marks.get(campaign_id, BEGINNING)

    def starts(self, campaign_ids: Iterable[int]) -> dict[int, datetime]:
        """Where the probe starts: from the beginning when it is time for that."""
        now = time.monotonic()
        return {
            one: BEGINNING if now >= self._rescan_at.get(one, 0.0) else self.of(one)
            for one in campaign_ids
        }

    def looked(self, looks: Iterable[Look], seconds: float) -> None:
        """Learn from a probe that took so long."""
        for look in looks:
            if look.start == BEGINNING:
                wait = max(RESCAN_S, seconds / _BUSY)
                self._rescan_at[look.campaign_id] = time.monotonic() + wait
            if look.due_at is not None:
                self._marks[look.campaign_id] = look.due_at

    def advance(self, last_due: Mapping[int, datetime]) -> None:
        """Learn from a claim: it takes rows in the order of `due_at`."""
        self._marks.update(last_due)
