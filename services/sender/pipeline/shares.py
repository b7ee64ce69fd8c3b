"""Divides a number's permits among its campaigns: deficit round robin, in memory."""

from collections.abc import Mapping


class Shares:
    """Remembers what each campaign is owed, so that small weights get their turn too."""

    def __init__(self) -> None:
        self._owed: dict[int, float] = {}

    def divide(self, permits: int, weights: Mapping[int, int]) -> dict[int, int]:
        """Whole permits per campaign, `permits` in all, in proportion to the weights over time.

        A campaign that is not asked for loses its claim: it had nothing to send.
        """
        total = sum(weights.values())
        owed = {
            campaign: self._owed.get(campaign, 0.0) + permits * weight / total
            for campaign, weight in weights.items()
        }
        parts = _whole(owed, permits)
        self._owed = {campaign: owed[campaign] - parts[campaign] for campaign in weights}
        return {campaign: part for campaign, part in parts.items() if part}


def _whole(owed: Mapping[int, float], permits: int) -> dict[int, int]:
    """Whole parts by need, `permits` in all, whatever those that dropped out were owed."""
    parts = dict.fromkeys(owed, 0)
    left = permits
    for campaign in sorted(owed, key=lambda campaign: -owed[campaign]):
        parts[campaign] = min(left, max(0, int(owed[campaign])))
        left -= parts[campaign]
    for campaign in sorted(owed, key=lambda campaign: parts[campaign] - owed[campaign]):
        parts[campaign] += left > 0
        left -= left > 0
    neediest = max(owed, key=lambda campaign: owed[campaign] - parts[campaign])
    parts[neediest] += left
    return parts
