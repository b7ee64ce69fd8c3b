"""Phone numbers that meet an error of Meta's by themselves: +44 7400 and the code."""

from shared.whatsapp.errors import ERRORS, Effect, MetaError

_START = "447400"
# What stops a number, an account or a token would meet everybody, not the one who was written to.
_PERSONAL = (Effect.NONE, Effect.OPT_OUT, Effect.PAUSE_CAMPAIGN)
_ERRORS = {
    f"{_START}{code}": error
    for code, error in ERRORS.items()
    if 100_000 <= code <= 999_999 and error.effect in _PERSONAL
}


def error_of(to: str) -> MetaError | None:
    """What a message to this number meets, if it is one of these."""
    return _ERRORS.get(to.removeprefix("+"))
