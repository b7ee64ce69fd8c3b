"""The states of campaigns, and why they stand still."""

from enum import StrEnum


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


class Audience(StrEnum):
    """Whether more recipients may come."""

    OPEN = "open"
    CLOSED = "closed"


class UnknownPolicy(StrEnum):
    """What becomes of a send nobody knows the end of: at most once, or at least once."""

    HOLD = "hold"
    RESEND = "resend"
