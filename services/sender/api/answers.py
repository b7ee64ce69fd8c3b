"""What answers look like, for the OpenAPI page: tests hold the answers to it."""

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, Field

from services.sender.campaigns.holding import Holding
from shared.domain.campaigns import Audience, CampaignState, PauseReason, UnknownPolicy
from shared.domain.status import Status
from shared.whatsapp.live import Kind

Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    """Part of a list. `next_cursor` goes on where it ends; null: nothing follows."""

    data: list[Item]
    next_cursor: str | None


class ProblemAnswer(BaseModel):
    """A refusal, in the form of RFC 9457. `errors` name fields or rows."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]]


class ListedTemplate(BaseModel):
    name: str
    language: str


class ShownTemplate(ListedTemplate):
    components: list[dict[str, Any]]


class ShownBreaker(BaseModel):
    share: float
    of_last: int


class _Campaign(BaseModel):
    """`audience`: whether it takes recipients now; `keep_open`: whether its start leaves it so."""

    id: UUID
    name: str
    phone_number_id: str
    state: CampaignState
    pause_reason: PauseReason | None
    audience: Audience
    keep_open: bool
    endpoint: Literal["messages", "marketing_messages"]
    unknown_policy: UnknownPolicy
    unknown_window: int
    max_attempts: int
    weight: int
    default_country: str | None
    labels: dict[str, str]
    expires_at: datetime | None
    breaker: ShownBreaker
    start_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class ListedCampaign(_Campaign):
    """Without the components of its template."""

    template: ListedTemplate


class ShownCampaign(_Campaign):
    """A campaign as it stands."""

    template: ShownTemplate


class Upload(BaseModel):
    """A file: `rows` = `accepted` + `duplicate` + `invalid`; `error` says why nothing was taken."""

    id: int
    state: Literal["running", "done", "failed"]
    rows: int
    accepted: int
    duplicate: int
    invalid: int
    error: str | None
    started_at: datetime
    finished_at: datetime | None


class CampaignNow(ShownCampaign):
    """A campaign and how far it is."""

    counts: dict[Status | Literal["total"], int]
    rate: float | None
    eta: datetime | None
    holding: list[Holding]
    uploads: list[Upload]


class Event(BaseModel):
    """Who did what to a campaign, and why."""

    id: int
    at: datetime
    kind: str
    actor: str
    details: dict[str, Any]


class Minute(BaseModel):
    minute: datetime
    entered: dict[Status, int]


class Moved(BaseModel):
    next_cursor: str | None


class Requeued(Moved):
    requeued: int


class Settled(Moved):
    settled: int


class RejectedRow(BaseModel):
    row: int
    reason: str


class TakenIn(BaseModel):
    """What became of a file, with the first of its rejects."""

    upload_id: int
    rows: int
    accepted: int
    duplicate: int
    invalid: int
    rejects: list[RejectedRow]


class Recipient(BaseModel):
    """A person and what became of the message.

    `attempt` numbers the attempts from 1 on: the one that is under way or was the last, or, of a
    message that waits, the next. It rises whenever the message is put back, also where nothing had
    left. `spent` are the attempts of `max_attempts` that Meta has judged, since the last retry.
    """

    id: int
    phone: str | None
    external_id: str | None
    parameters: dict[str, Any]
    metadata: dict[str, Any] | None
    status: Status
    attempt: int
    spent: int
    due_at: datetime | None
    claimed_at: datetime | None
    accepted_at: datetime | None
    sent_at: datetime | None
    delivered_at: datetime | None
    read_at: datetime | None
    failed_at: datetime | None
    error_code: int | None
    error_title: str | None
    reason: str | None
    wamid: str | None


class Attempt(BaseModel):
    """An attempt that did not end accepted."""

    attempt: int
    recorded_at: datetime | None
    evidence_at: datetime | None
    evidence: str | None
    error_code: int | None
    error_title: str | None
    outcome: str | None
    wamid: str | None
    details: str | None
    fbtrace_id: str | None


class RecipientInFull(Recipient):
    attempts: list[Attempt]


class Accepted(BaseModel):
    """A live message that Meta took; `note` where it said more than that."""

    id: int
    status: Literal[Status.ACCEPTED, Status.SENT, Status.DELIVERED, Status.READ]
    wamid: str | None
    note: str | None = None


class NotKnown(BaseModel):
    """A live message that may have left."""

    id: int
    status: Status
    wamid: str | None
    reason: str | None = None


class LiveMessageNow(BaseModel):
    """A live message and what became of it."""

    id: int
    phone_number_id: str
    phone: str
    type: Kind
    created_at: datetime
    status: Status
    accepted_at: datetime | None
    sent_at: datetime | None
    delivered_at: datetime | None
    read_at: datetime | None
    failed_at: datetime | None
    error_code: int | None
    error_title: str | None
    reason: str | None
    wamid: str | None
    attempts: list[Attempt]


class Key(BaseModel):
    """An API key, without the key itself."""

    id: int
    name: str
    scopes: list[str]
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class MadeKey(Key):
    key: str | None = Field(description="Shown this once; null when the request was a repeat")


class ShownNumber(BaseModel):
    """A business number. `campaign_rate`: what its campaigns may use, messages a second."""

    phone_number_id: str
    waba_id: str
    portfolio_id: str | None
    rate: int
    headroom: float
    token: str | None
    created_at: datetime
    state: Literal["active", "paused"]
    paused_reason: str | None
    paused_until: datetime | None
    campaign_rate: float


class NumberNow(ShownNumber):
    """A number and its pace; null while Redis is away."""

    effective_rate: float | None
    sends_last_minute: int | None


class Halted(BaseModel):
    halted: bool


def answers(model: Any, status: int = 200) -> dict[str, Any]:
    """What a route's decorator is told. Only told: a dict is answered as it is, and fast."""
    return {"responses": {status: {"model": model}}, "status_code": status}
