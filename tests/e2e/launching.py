"""How a test starts a campaign (the fixture `launch`)."""

from collections.abc import Mapping
from typing import Any, Protocol

from services.cli.trial import Trial


class Launch(Protocol):
    """Starts a campaign of so many recipients at so many per second through a scenario."""

    async def __call__(self, recipients: int, rate: int, scenario: Mapping[str, Any]) -> Trial: ...
