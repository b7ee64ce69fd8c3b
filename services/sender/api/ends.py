"""What the end of a live message is as an answer, and how one is refused."""

import math
from typing import Any

from services.sender.api.idempotency import Answer
from services.sender.pipeline.live import End
from services.sender.pipeline.live_rows import LiveRefused, LiveRow, Refusal
from services.sender.pipeline.outcome import Accepted, Failed, Retry, Throttled, Unknown
from shared.web import Problem
from shared.whatsapp.errors import Effect, rule_for

# What was not sent for a reason of ours, by the row's reason.
_UNSENT = {
    Refusal.HALTED.value: (409, "everything is halted"),
    Refusal.PAUSED.value: (409, "the number was paused before the message had its permit"),
    "no_permit": (429, "no permit within max_wait_ms"),
    "no_permits": (503, "Redis does not answer: nothing is sent"),
    "database_away": (503, "the database does not answer"),
    "stale": (503, "the process stood still for too long before the send"),
    "drained": (503, "the process is stopping"),
}
_OPTED_OUT, _NOT_ALLOWED = "opted_out", "not_allowed"
_BARRED = {
    _OPTED_OUT: "this person has opted out",
    _NOT_ALLOWED: "HEADRACE_ALLOWED_RECIPIENTS does not name this person",
}


def answer(end: End) -> Answer | Problem:
    """200 or 202; or that it was not sent, or refused by Meta, and will not be sent later."""
    match end.outcome:
        case Accepted(wamid, note):
            body = {"id": end.row.id, "status": "accepted", "wamid": wamid}
            return Answer(200, body | ({"note": note} if note else {}))
        case Unknown(reason):
            body = {"id": end.row.id, "status": "unknown", "wamid": None, "reason": reason}
            return Answer(202, body)
        case Throttled(reason, sent_nothing=True):
            return _unsent(end, reason)
        case Throttled() as throttled:
            return _throttled(end, throttled)
        case Retry() as retry:
            seconds = retry.later.total_seconds() if retry.later else 1.0
            return _refused(end, 503, "Meta could not take it now", retry, seconds)
        case Failed() as failed:
            return _refused(end, 422, "Meta refused it", failed, None)


def refusal(refused: LiveRefused) -> Problem:
    """Nothing was written."""
    match refused.refusal:
        case Refusal.UNKNOWN_NUMBER:
            return Problem(404, "there is no number with this id")
        case Refusal.HALTED:
            return Problem(409, "everything is halted")
        case Refusal.PAUSED:
            reason = f" ({refused.reason})" if refused.reason else ""
            return Problem(409, f"the number is paused{reason}", headers=_after(refused.seconds))
        case Refusal.NO_TOKEN:
            return Problem(503, refused.reason or "the number has no token")
        case Refusal.STOPPING:
            return Problem(503, "the process is stopping", headers=_after(1.0))


def skipped(row: LiveRow) -> Problem:
    """The row says so too."""
    detail = _BARRED[row.barred or _NOT_ALLOWED]
    return Problem(409, detail, members={"id": row.id, "reason": row.barred})


def _unsent(end: End, reason: str) -> Problem:
    status, detail = _UNSENT.get(reason, (503, f"Meta cannot be reached ({reason})"))
    headers = None if status == 409 else _after(end.wait or 1.0)
    return Problem(status, detail, headers=headers, members={"id": end.row.id, "reason": reason})


def _throttled(end: End, throttled: Throttled) -> Problem:
    seconds = throttled.pause.total_seconds() if throttled.pause else None
    if throttled.effect is Effect.SLOW_NUMBER:
        return _refused(end, 429, "Meta throttled the number", throttled, seconds or 1.0)
    return _refused(end, 503, "Meta takes nothing from this number", throttled, seconds)


def _refused(
    end: End, status: int, said: str, by: Throttled | Retry | Failed, seconds: float | None
) -> Problem:
    """`title` in the detail is ours: Meta's own text may name people, so it stands by itself."""
    title = None if by.code is None else rule_for(by.code, 400).title
    members: dict[str, Any] = {
        "id": end.row.id,
        "reason": by.reason,
        "error_code": by.code,
        "error_title": title,
        "error_details": by.details,
    }
    what = f"{by.code} {title}" if by.code is not None else by.reason
    return Problem(status, f"{said}: {what}", headers=_after(seconds), members=members)


def _after(seconds: float | None) -> dict[str, str] | None:
    return None if seconds is None else {"Retry-After": str(max(1, math.ceil(seconds)))}
