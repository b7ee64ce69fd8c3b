"""Seeded chance: what falls depends on seed and key alone, never on the order of requests."""

from hashlib import blake2b
from math import exp
from statistics import NormalDist
from struct import Struct

_FACES = 1 << 16
_DRAWS = 22
_BYTES = 2 * _DRAWS
_unpack = Struct(f"<{_DRAWS}H").unpack
_quantile = NormalDist().inv_cdf


class Die:
    """One draw each, plain integers for speed; a gap of three is one die per status."""

    ERROR = 0
    AMBIGUOUS = 1
    WITHHOLD = 2
    FAILED = 3
    LATENCY = 4
    READ = 5
    REORDER = 6
    EARLY = 7
    DELAY = 10
    LOST = 13
    REPEATED = 16
    REPEAT_AFTER = 19


class Dice:
    """The draws of one key, one hash for all of them."""

    __slots__ = ("_faces",)

    def __init__(self, seed: int, key: str) -> None:
        self._faces = _unpack(blake2b(f"{seed} {key}".encode(), digest_size=_BYTES).digest())

    def uniform(self, die: int) -> float:
        """Between 0 and 1, neither included."""
        return float(self._faces[die] + 0.5) / _FACES

    def hits(self, die: int, share: float) -> bool:
        """True for this share of all keys."""
        return bool(self._faces[die] < share * _FACES)

    def around(self, die: int, median: float, sigma: float) -> float:
        """Log-normal."""
        return median * exp(sigma * _quantile(self.uniform(die))) if sigma else median
