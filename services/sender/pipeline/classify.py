"""From Meta's reply to an outcome. Any parsed code decides, whatever the HTTP status."""

from datetime import UTC, datetime, timedelta

from services.sender.pipeline.outcome import Accepted, Failed, Outcome, Retry, Throttled, Unknown
from services.sender.pipeline.reply import Lost, NotSent, Replied, Reply
from services.sender.pipeline.retry_after import regain_after, retry_after
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
        rule = rule_for(body.error.code, reply.http_status, body.error.subcode)
        return _by_code(rule, body.error, reply)
    if body.wamid is not None and 200 <= reply.http_status < 300:
        held = body.message_status not in (None, "accepted")
        return Accepted(body.wamid, body.message_status if held else None)
    return _by_status(reply)


def _by_code(rule: MetaError, error: ReplyError, reply: Replied) -> Outcome:
    details, trace = storable(error.details), error.fbtrace_id
    match rule.outcome:
        case OutcomeKind.THROTTLED:
            pause = _pause(rule, reply)
            return Throttled("meta", rule.code, rule.effect, details, trace, pause=pause)
        case OutcomeKind.RETRY:
            return Retry(rule.code, "meta", rule.later, details, trace, rule.tries)
        case OutcomeKind.FAILED:
            return Failed(rule.code, "meta", details, trace, rule.effect)
        case OutcomeKind.UNKNOWN:
            return Unknown("meta", rule.code, details, trace)


def _pause(rule: MetaError, reply: Replied) -> timedelta | None:
    """How long the number waits. What only an operator ends has no end, whatever a header says."""
    if rule.effect is Effect.SLOW_NUMBER:
        return _asked(reply)
    if rule.pause is None:
        return None
    return max(rule.pause, _asked(reply) or rule.pause, regain_after(reply.headers) or rule.pause)


def _asked(reply: Replied) -> timedelta | None:
    return retry_after(reply.headers, datetime.now(UTC))


def _by_status(reply: Replied) -> Outcome:
    """No code: a proxy's page, an empty body, JSON of a strange shape."""
    status, details = (
        reply.http_status,
        storable(reply.body[: 4 * _DETAILS].decode(errors="replace")),
    )
    reason = f"http_{status}"
    if status == 429:
        return Throttled(reason, None, Effect.SLOW_NUMBER, details, pause=_asked(reply))
    if status == 503:
        return Retry(None, reason, _asked(reply) or None, details)
    if 400 <= status < 500:
        return Failed(None, reason, details)
    # A proxy's 5xx may stand before a request that went through; so may a 200 without an id.
    return Unknown(reason, details=details)


def storable(text: str) -> str:
    """Text that Postgres takes, cut to what is kept."""
    return text.replace("\0", "")[:_DETAILS]
