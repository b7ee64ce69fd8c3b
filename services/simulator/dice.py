"""Seeded chance: what falls depends on seed and key alone, never on the order of requests."""

from enum import IntEnum
from hashlib import blake2b
from math import exp
from statistics import NormalDist
from struct import Struct

_FACES = 1 << 16
_unpack = Struct("<32H").unpack
_quantile = NormalDist().inv_cdf


class Die(IntEnum):
    """One draw each; a gap of three is one die per status of a message."""

    ERROR = 0
    AMBIGUOUS = 1
    WITHHOLD = 2
    FAILED = 3
    LATENCY = 4
    READ = 5
    REORDER = 6
    EARLY = 7
    GAP = 8
    DELAY = 10
    LOST = 13
    REPEATED = 16
    REPEAT_AFTER = 19


class Dice:
    """The draws of one key, one hash for all of them."""

    __slots__ = ("_faces",)

    def __init__(self, seed: int, key: str) -> None:
        data = key.encode()
        self._faces = _unpack(blake2b(data, digest_size=64, key=seed.to_bytes(8)).digest())

    def uniform(self, die: int) -> float:
        """Between 0 and 1, neither included."""
        return float(self._faces[die] + 0.5) / _FACES

    def hits(self, die: int, share: float) -> bool:
        """True for this share of all keys."""
        return bool(self._faces[die] < share * _FACES)

    def around(self, die: int, median: float, sigma: float) -> float:
        """Log-normal."""
        return median * exp(sigma * _quantile(self.uniform(die))) if sigma else median
