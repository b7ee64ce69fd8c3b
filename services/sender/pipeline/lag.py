"""How late messages leave after their slots: nothing is caught up at once."""

# Slots are 1.01/rate apart: that leaves a hundredth of a second per second. Catching up at once
# after a delay would put more than the rate into one second, so a lag stays, wears off slowly, and
# a slot that is past by more than the greatest lag and a little is void. The reserve is for the
# wear and for that little.
MOST_LAG_S = 0.020
LATE_S = 0.025
_WEAR = 0.004


class Lag:
    """How late messages leave after their slots, in seconds: it rises at once and falls slowly."""

    def __init__(self) -> None:
        self._lag = 0.0
        self._slot = 0.0

    def at(self, slot: float) -> float:
        """The least lateness of the message of this slot."""
        return max(0.0, self._lag - _WEAR * (slot - self._slot))

    def grow(self, slot: float, now: float) -> float:
        """Learn how late the message of this slot is; returns it."""
        late = now - slot
        self._lag = min(max(late, self.at(slot)), MOST_LAG_S)
        self._slot = slot
        return late
