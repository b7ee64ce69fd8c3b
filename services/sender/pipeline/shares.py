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
        parts = {campaign: max(0, int(credit)) for campaign, credit in owed.items()}
        for campaign in _neediest(owed, parts):
            if sum(parts.values()) >= permits:
                break
            parts[campaign] += 1
        self._owed = {campaign: owed[campaign] - parts[campaign] for campaign in weights}
        return {campaign: part for campaign, part in parts.items() if part}


def _neediest(owed: Mapping[int, float], parts: Mapping[int, int]) -> list[int]:
    return sorted(owed, key=lambda campaign: parts[campaign] - owed[campaign])
