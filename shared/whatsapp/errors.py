"""Meta's error codes and what each means for row, number and campaign: one table for all."""

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum


class OutcomeKind(StrEnum):
    """What an error says about the one message that met it."""

    THROTTLED = "throttled"  # nothing was judged: the row goes back untouched
    RETRY = "retry"  # judged, may work later
    FAILED = "failed"  # will not work for this recipient
    UNKNOWN = "unknown"  # may have been sent


class Effect(StrEnum):
    """What an error says about everything beside the one message."""

    NONE = "none"
    SLOW_NUMBER = "slow_number"  # the number's pace was too high
    PAUSE_NUMBER = "pause_number"
    PAUSE_NUMBERS_OF_ACCOUNT = "pause_numbers_of_account"
    PAUSE_NUMBERS_OF_TOKEN = "pause_numbers_of_token"  # noqa: S105  # numbers that share a token
    PAUSE_CAMPAIGN = "pause_campaign"  # reason: template
    PAUSE_ACCOUNT = "pause_account"  # the campaign pauses with reason: account
    PAUSE_PORTFOLIO = "pause_portfolio"  # of all its accounts; reason: account
    PAUSE_TOKEN = "pause_token"  # noqa: S105  # reason: token
    OPT_OUT = "opt_out"


@dataclass(frozen=True, slots=True)
class MetaError:
    """One row of the table. `http_status` is what Meta usually sends: advice, never a criterion.

    `later` is the least time before the next attempt of a retry, `tries` how many attempts of one
    message may end so; `pause` how long a paused number holds (None: until an operator resumes it).
    `personal` says something about this one person alone, so that no breaker counts it: an old list
    is full of such.
    """

    code: int
    http_status: int
    title: str
    outcome: OutcomeKind
    effect: Effect = Effect.NONE
    later: timedelta | None = None
    pause: timedelta | None = None
    tries: int | None = None
    personal: bool = False


_T, _R, _F, _U = OutcomeKind.THROTTLED, OutcomeKind.RETRY, OutcomeKind.FAILED, OutcomeKind.UNKNOWN
_TOKEN, _ACCOUNT, _NUMBER = Effect.PAUSE_TOKEN, Effect.PAUSE_ACCOUNT, Effect.PAUSE_NUMBER
_CAMPAIGN, _SLOW = Effect.PAUSE_CAMPAIGN, Effect.SLOW_NUMBER
_SAME_ACCOUNT, _SAME_TOKEN = Effect.PAUSE_NUMBERS_OF_ACCOUNT, Effect.PAUSE_NUMBERS_OF_TOKEN
_DAY, _PAIR = timedelta(hours=24), timedelta(seconds=6)
_MINUTE, _MINUTES, _HOURS = timedelta(minutes=1), timedelta(minutes=5), timedelta(hours=4)

# Source: Meta's error code page as of September 2026, with the channels and statuses that were
# observed. Trouble of token, account, template or number throttles the row: it is no fault of
# the recipient, so the row waits untouched until someone has cured it.
_TABLE = (
    MetaError(0, 401, "Authentication failed", _T, _TOKEN),
    MetaError(1, 400, "Unknown API error", _R, later=timedelta(minutes=2)),
    MetaError(2, 503, "Service temporarily unavailable", _R),
    MetaError(3, 500, "Capability or permission missing", _T, _TOKEN),
    MetaError(4, 400, "Application call limit reached", _T, _SAME_TOKEN, pause=_MINUTES),
    MetaError(10, 403, "Permission not granted or removed", _T, _TOKEN),
    MetaError(17, 400, "User call limit reached", _T, _NUMBER, pause=_MINUTES),
    MetaError(32, 400, "Page call limit reached", _T, _NUMBER, pause=_MINUTES),
    MetaError(33, 400, "Phone number id unknown or deleted", _T, _NUMBER),
    MetaError(100, 400, "Invalid parameter", _F),
    MetaError(104, 401, "No access token sent", _T, _TOKEN),
    MetaError(190, 401, "Access token expired or invalid", _T, _TOKEN),
    MetaError(368, 403, "Account restricted for policy violations", _T, _ACCOUNT),
    MetaError(506, 400, "Duplicate post", _U),
    MetaError(613, 400, "Call limit reached", _T, _NUMBER, pause=_MINUTES),
    MetaError(80007, 400, "Account call limit reached", _T, _SAME_ACCOUNT, pause=_MINUTES),
    MetaError(130403, 403, "Recipient blocked by the business", _F, personal=True),
    MetaError(130429, 400, "Rate limit hit", _T, _SLOW),
    MetaError(130472, 400, "Recipient is part of an experiment", _F, personal=True),
    MetaError(130497, 403, "Business may not message this country", _F),
    MetaError(130501, 400, "Message type not supported", _T, _CAMPAIGN),
    MetaError(131000, 500, "Something went wrong", _R),
    MetaError(131005, 403, "Access denied", _T, _TOKEN),
    MetaError(131008, 400, "Required parameter is missing", _F),
    MetaError(131009, 400, "Parameter value is not valid", _F),
    MetaError(131016, 500, "Service unavailable", _R),
    MetaError(131021, 400, "Recipient cannot be sender", _F, personal=True),
    MetaError(131026, 400, "Message undeliverable", _F, personal=True),
    MetaError(131030, 400, "Recipient not in the allowed list", _F),
    MetaError(131031, 403, "Account locked", _T, _ACCOUNT),
    MetaError(131037, 400, "Display name not approved", _T, _NUMBER),
    MetaError(131042, 400, "Business payment issue", _T, _ACCOUNT),
    MetaError(131045, 500, "Phone number certificate error", _T, _NUMBER),
    MetaError(131047, 400, "Re-engagement message", _F),
    MetaError(131048, 400, "Spam rate limit hit", _T, _NUMBER, pause=_HOURS),
    MetaError(
        131049, 400, "Not delivered, healthy ecosystem", _R, later=_DAY, tries=2, personal=True
    ),
    MetaError(131050, 400, "User stopped marketing", _F, Effect.OPT_OUT, personal=True),
    MetaError(131051, 400, "Unsupported message type", _T, _CAMPAIGN),
    MetaError(131053, 400, "Media upload error", _F),
    MetaError(131055, 400, "Method not allowed", _T, _CAMPAIGN),
    MetaError(131056, 400, "Pair rate limit hit", _R, later=_PAIR, personal=True),
    MetaError(131057, 500, "Account in maintenance mode", _T, _NUMBER, pause=_MINUTE),
    MetaError(131062, 400, "Recipient id not supported", _F),
    MetaError(131063, 400, "Marketing templates disabled here", _T, _CAMPAIGN),
    MetaError(131064, 400, "Limited for template misclassification", _T, _ACCOUNT),
    MetaError(132000, 400, "Template parameter count mismatch", _F),
    MetaError(132001, 404, "Template does not exist", _T, _CAMPAIGN),
    MetaError(132005, 400, "Template text too long", _F),
    MetaError(132007, 400, "Template content violates policy", _T, _CAMPAIGN),
    MetaError(132008, 400, "Template parameter value invalid", _F),
    MetaError(132012, 400, "Template parameter format mismatch", _F),
    MetaError(132015, 400, "Template paused", _T, _CAMPAIGN),
    MetaError(132016, 400, "Template disabled", _T, _CAMPAIGN),
    MetaError(132018, 400, "Template parameter validation failed", _F),
    MetaError(132068, 400, "Flow blocked", _T, _CAMPAIGN),
    MetaError(132069, 400, "Flow throttled", _T, _CAMPAIGN),
    MetaError(133004, 503, "Server temporarily unavailable", _R),
    MetaError(133005, 400, "Two-step verification PIN mismatch", _T, _NUMBER),
    MetaError(133006, 400, "Phone number re-verification needed", _T, _NUMBER),
    MetaError(133008, 400, "Too many PIN guesses", _T, _NUMBER),
    MetaError(133009, 400, "PIN guessed too fast", _T, _NUMBER),
    MetaError(133010, 400, "Phone number not registered", _T, _NUMBER),
    MetaError(134011, 400, "Payments terms not accepted", _T, _CAMPAIGN),
    MetaError(134100, 400, "Not a marketing template", _T, _CAMPAIGN),
    MetaError(134101, 400, "Template still syncing", _R, later=timedelta(minutes=10)),
    MetaError(134102, 500, "Template unavailable", _T, _CAMPAIGN),
    MetaError(135000, 400, "Generic user error", _F),
    MetaError(137000, 400, "Recipient identity key mismatch", _F, personal=True),
    MetaError(2494100, 400, "Number in maintenance mode", _T, _NUMBER, pause=_MINUTES),
)

ERRORS: dict[int, MetaError] = {error.code: error for error in _TABLE}

# The wrong object: the number's id is unknown, deleted, or out of the token's reach.
_WRONG_PARAMETER, _NO_SUCH_OBJECT = 100, 33

# Where Meta has said yes first. What it held for an assessment and dropped stays so until an
# operator decides, and a portfolio under review may send nothing.
_BY_WEBHOOK = {
    132015: replace(ERRORS[132015], outcome=_F),
    135000: replace(ERRORS[135000], effect=Effect.PAUSE_PORTFOLIO),
}


def rule_for(code: int, http_status: int, subcode: int | None = None) -> MetaError:
    """What the code of a reply means; the HTTP status decides only for codes that Meta added since.

    A new code with a 4xx is final for its recipient; with a 5xx nobody knows.
    """
    if code == _WRONG_PARAMETER and subcode == _NO_SUCH_OBJECT:
        return replace(ERRORS[_NO_SUCH_OBJECT], code=code)
    if code in ERRORS:
        return ERRORS[code]
    if 200 <= code <= 299:
        return MetaError(code, http_status, "Permission missing or removed", _T, _TOKEN)
    kind = OutcomeKind.UNKNOWN if http_status >= 500 else OutcomeKind.FAILED
    return MetaError(code, http_status, "Unlisted code", kind)


def rule_for_webhook(code: int) -> MetaError:
    """What the code of a failed message means that Meta had accepted."""
    return _BY_WEBHOOK.get(code) or rule_for(code, 400)


def is_personal(code: int) -> bool:
    """Whether the code says something about one person alone."""
    return rule_for(code, 400).personal
