"""From Meta's reply to an outcome. Any parsed code decides, whatever the HTTP status."""

from services.sender.pipeline.outcome import Accepted, Failed, Outcome, Retry, Throttled, Unknown
from services.sender.pipeline.reply import Lost, NotSent, Replied, Reply
from shared.whatsapp.errors import Effect, MetaError, OutcomeKind, rule_for
from shared.whatsapp.messages import ReplyError, read_reply

_DETAILS = 500


def classify(reply: Reply) -> Outcome:
    """Say what one exchange with Meta means for its message."""
    match reply:
        case NotSent(reason):
            return Throttled(reason, sent_nothing=True)
        case Lost(reason):
            return Unknown(reason)
        case Replied():
            return _classify_reply(reply)


def _classify_reply(reply: Replied) -> Outcome:
    body = read_reply(reply.body)
    if body.error is not None:
        return _by_code(rule_for(body.error.code, reply.http_status), body.error)
    if body.wamid is not None and 200 <= reply.http_status < 300:
        held = body.message_status not in (None, "accepted")
        return Accepted(body.wamid, body.message_status if held else None)
    return _by_status(reply)


def _by_code(rule: MetaError, error: ReplyError) -> Outcome:
    details, trace = storable(error.details), error.fbtrace_id
    match rule.outcome:
        case OutcomeKind.THROTTLED:
            return Throttled("meta", rule.code, rule.effect, details, trace)
        case OutcomeKind.RETRY:
            return Retry(rule.code, "meta", rule.later, details, trace)
        case OutcomeKind.FAILED:
            return Failed(rule.code, "meta", details, trace, rule.effect)
        case OutcomeKind.UNKNOWN:
            return Unknown("meta", rule.code, details, trace)


def _by_status(reply: Replied) -> Outcome:
    """No code: a proxy's page, an empty body, JSON of a strange shape."""
    status, details = (
        reply.http_status,
        storable(reply.body[: 4 * _DETAILS].decode(errors="replace")),
    )
    reason = f"http_{status}"
    if status == 429:
        return Throttled(reason, None, Effect.SLOW_NUMBER, details)
    if status == 503:
        return Retry(None, reason, details=details)
    if 400 <= status < 500:
        return Failed(None, reason, details)
    # A proxy's 5xx may stand before a request that went through; so may a 200 without an id.
    return Unknown(reason, details=details)


def storable(text: str) -> str:
    """Text that Postgres takes, cut to what is kept."""
    return text.replace("\0", "")[:_DETAILS]
