"""The states of campaigns, and why they stand still."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self


class CampaignState(StrEnum):
    """draft → scheduled → running ⇄ paused → completed | cancelled."""

    DRAFT = "draft"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


#: A campaign in one of these sends no more.
ENDED = (CampaignState.COMPLETED, CampaignState.CANCELLED)


class PauseReason(StrEnum):
    """Why a campaign is paused: a paused campaign always says so."""

    OPERATOR = "operator"
    BREAKER = "breaker"
    TEMPLATE = "template"
    ACCOUNT = "account"
    TOKEN = "token"  # noqa: S105  # the word for a reason, not a secret
    NUMBER = "number"
    SCHEDULE_MISSED = "schedule_missed"


@dataclass(frozen=True, slots=True)
class BreakerLimit:
    """A campaign pauses when more than this share of its last outcomes were failures of its own.

    With a share of 1 it never does.
    """

    # Fifty people are what a broken template may cost. Above what an outage of Meta costs before
    # it is recognised as one (twenty), so that sending resumes by itself after it.
    share: float = 0.5
    of_last: int = 100

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None) -> Self:
        """A campaign's limit as it is stored; without one, the usual."""
        return cls(**stored) if stored else cls()


USUAL_BREAKER = BreakerLimit()


class Audience(StrEnum):
    """Whether more recipients may come."""

    OPEN = "open"
    CLOSED = "closed"


class UnknownPolicy(StrEnum):
    """What becomes of a send nobody knows the end of: at most once, or at least once."""

    HOLD = "hold"
    RESEND = "resend"
