"""How the simulated Meta behaves: everything a test may ask for, calm by default."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from services.simulator.settings import WebhookUrl
from shared.whatsapp.errors import ERRORS


def _listed(code: int) -> int:
    if code not in ERRORS:
        raise ValueError("not in the table of Meta's errors")
    return code


Share = Annotated[float, Field(ge=0, le=1)]
Sigma = Annotated[float, Field(ge=0, le=2)]
Code = Annotated[int, AfterValidator(_listed)]


class Part(BaseModel):
    """A typo in a scenario would quietly test nothing: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Latency(Part):
    """Time to the reply, log-normal: p99 is `median_ms` times e^(2.33 sigma)."""

    median_ms: NonNegativeFloat = 40
    sigma: Sigma = 0.3


class ThrottleEpisodes(Part):
    """The last `for_s` of every `every_s` since a number's first request refuse all its sends."""

    every_s: PositiveFloat
    for_s: PositiveFloat

    @model_validator(mode="after")
    def _leaves_a_gap(self) -> Self:
        if self.for_s >= self.every_s:
            raise ValueError("for_s must be below every_s")
        return self


class PairLimit(Part):
    """One message per `per_s` to one person; a burst is lent against the future."""

    per_s: PositiveFloat = 6
    burst: PositiveInt = 45


class RecipientShare(Part):
    """A share of the recipients, each met at most so often (null: always)."""

    share: Share
    times_per_recipient: PositiveInt | None = 1


class ErrorShare(RecipientShare):
    """Recipients whose send is refused with a code of Meta's."""

    code: Code


class FailedShare(ErrorShare):
    """Recipients whose accepted message fails later, by webhook: at once or after `sent`."""

    after_sent: bool = False


class AmbiguousKind(StrEnum):
    """Replies from which nobody can tell whether the message was accepted."""

    STALL = "stall"
    RESET = "reset"
    HTML_502 = "html_502"
    EMPTY_200 = "empty_200"
    GARBAGE_200 = "garbage_200"


class AmbiguousShare(RecipientShare):
    """Recipients whose send gets such a reply, after acceptance or (`accepted` false) without.

    `withhold` is the share of these that never get a status; all others get at least one that
    carries the token. A stall answers after `stall_s`, or never.
    """

    kind: AmbiguousKind
    accepted: bool = True
    withhold: Share = 0
    stall_s: PositiveFloat | None = None

    @model_validator(mode="after")
    def _stalls_only(self) -> Self:
        if self.stall_s is not None and self.kind is not AmbiguousKind.STALL:
            raise ValueError("stall_s is for the kind stall")
        if self.stall_s is not None and not self.accepted:
            raise ValueError("a stall that answers in the end has accepted the message")
        return self


class Delays(Part):
    """Median seconds of each step since the one before; `sent` counts from acceptance."""

    sent: NonNegativeFloat = 0.2
    delivered: NonNegativeFloat = 0.5
    read: NonNegativeFloat = 2.0


class Redelivery(Part):
    """Wait before a webhook is posted again, doubling until it gets a 200."""

    first_s: PositiveFloat = 0.5
    cap_s: PositiveFloat = 30


class Webhooks(Part):
    """What becomes of an accepted message, and how the statuses travel.

    `failed` is Meta's asynchronous failure. `lost_share` of statuses are never posted,
    `repeated_share` are posted twice; `reorder_share` of messages get theirs latest first;
    `early_share` of messages get the first one before the reply to the send. Up to `batch`
    statuses of a number that fall due within `window_ms` share one POST.
    """

    url: WebhookUrl | None = None
    delay_s: Delays = Delays()
    jitter: Sigma = 0.3
    read_share: Share = 0.5
    failed: tuple[FailedShare, ...] = ()
    lost_share: Share = 0
    repeated_share: Share = 0
    reorder_share: Share = 0
    early_share: Share = 0
    batch: Annotated[int, Field(ge=1, le=1000)] = 1
    window_ms: NonNegativeFloat = 50
    omit_token_on_failed: bool = False
    redelivery: Redelivery = Redelivery()
    connections: Annotated[int, Field(ge=1, le=512)] = 32
    timeout_s: PositiveFloat = 10


class Account(Part):
    """What the calls beside sends tell of the token, its account and the account's numbers.

    Nothing of it changes what becomes of a send. A token with `token_expires_in_s` null is
    permanent. What is not subscribed, or not registered, is after the call that does it.
    """

    token_valid: bool = True
    token_expires_in_s: float | None = None
    scopes: tuple[str, ...] = ("whatsapp_business_management", "whatsapp_business_messaging")
    subscribed: bool = True
    registered: bool = True
    status: str = "CONNECTED"
    quality_rating: str = "GREEN"


class Scenario(Part):
    """All of it. `throughput` is messages per second and number, null for no limit."""

    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 1
    latency: Latency = Latency()
    throughput: PositiveInt | None = None
    throttle_episodes: ThrottleEpisodes | None = None
    pair_limit: PairLimit | None = None
    errors: tuple[ErrorShare, ...] = ()
    ambiguous: tuple[AmbiguousShare, ...] = ()
    webhooks: Webhooks = Webhooks()
    account: Account = Account()

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        for shares in (self.errors, self.ambiguous, self.webhooks.failed):
            if sum(item.share for item in shares) > 1:
                raise ValueError("the shares of one list add up to more than 1")
        return self
