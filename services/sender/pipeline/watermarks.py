"""Where each campaign's next claim starts to look, so that claims stay flat while rows finish."""

import time
from datetime import datetime

from services.sender.pipeline.claim import BEGINNING, Share

#: Whatever lies below a watermark (another process gave it back) is found within this time.
RESCAN_S = 5.0


class Watermarks:
    """Per process: the `due_at` of the last claimed row of each campaign, inclusive."""

    def __init__(self) -> None:
        self._marks: dict[int, datetime] = {}
        self._rescan_at: dict[int, float] = {}

    def of(self, campaign_id: int) -> datetime:
        """Where to start; from the beginning at most every `RESCAN_S` seconds."""
        if time.monotonic() >= self._rescan_at.get(campaign_id, 0.0):
            return BEGINNING
        return self._marks.get(campaign_id, BEGINNING)

    def looked(self, campaign_id: int, start: datetime) -> None:
        """A look from `start` is done; one from the beginning is not repeated for a while."""
        if start == BEGINNING:
            self._rescan_at[campaign_id] = time.monotonic() + RESCAN_S

    def advance(self, share: Share, last_due: datetime | None, *, full: bool) -> None:
        """Learn from a claim. One that came up full may have left rows below an older mark."""
        self.looked(share.campaign_id, share.watermark)
        if last_due is None:
            return
        mark = self._marks.get(share.campaign_id, BEGINNING)
        self._marks[share.campaign_id] = last_due if full else max(mark, last_due)
