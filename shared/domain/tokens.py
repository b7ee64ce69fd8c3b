"""The token that each request carries and that Meta echoes in its webhooks."""

import re
from dataclasses import dataclass
from typing import Self

# Bounds keep a hostile number out of a bigint or an int column.
_SHAPE = re.compile(r"hr1:([0-9a-f]{32}):([1-9][0-9]{0,17}):([1-9][0-9]{0,8})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Token:
    """Which attempt at which message, by which installation (32 hexadecimal digits)."""

    installation: str
    message_id: int
    attempt: int

    def encode(self) -> str:
        """Text for `biz_opaque_callback_data`: no personal data, well below 512 characters."""
        return f"hr1:{self.installation}:{self.message_id}:{self.attempt}"

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """The token, or None when the text is not one of ours (another tool on the same number)."""
        found = _SHAPE.fullmatch(text) if text else None
        if found is None:
            return None
        return cls(found[1], int(found[2]), int(found[3]))
