"""Makes an audience as a CSV file, with the dirt of real ones: bad numbers and repeated people."""

import csv
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HEADER = ("phone", "name", "city")
BAD_SHARE = 0.02
REPEATED_SHARE = 0.01

# Country code and first digits of mobile numbers, then how many digits follow.
MOBILES = (
    ("+91 98", 8),
    ("+55 11 9", 8),
    ("+234 803", 7),
    ("+49 151", 8),
    ("+62 812", 8),
    ("+52 55", 8),
    ("+27 82", 7),
    ("+44 7401", 6),  # not 7400: there the simulator has its magic numbers
)
NAMES = ("Amina", "João", "Zoë", "李雷", "O'Brien, Pat", 'Ana "Nana" Souza', "Mary\nJane", "أمل")
CITIES = ("Lagos", "São Paulo", "Pune", "Köln", "Jakarta", "Puebla", "Durban", "Leeds")
# Each is refused: no number, too short, nothing, digits that are none in ASCII.
BAD_PHONES = ("call me", "+4915", "", "+49151²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class AudienceFile:
    """What is in the file: `valid` people, `bad` rows and `repeated` ones."""

    path: Path
    valid: int
    bad: int
    repeated: int


def write_audience(path: Path, valid: int, seed: int) -> AudienceFile:
    """Write `valid` distinct people and the dirt, in seeded disorder."""
    chance = random.Random(seed)
    phones = list(_phones(valid, chance))
    again = [
        _dressed(phone, chance)
        for phone in chance.sample(phones, _at_least_one(valid, REPEATED_SHARE))
    ]
    bad = [BAD_PHONES[place % len(BAD_PHONES)] for place in range(_at_least_one(valid, BAD_SHARE))]
    rows = [(phone, chance.choice(NAMES), chance.choice(CITIES)) for phone in phones + again + bad]
    chance.shuffle(rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([HEADER, *rows])
    return AudienceFile(path, valid, len(bad), len(again))


def _phones(count: int, chance: random.Random) -> Iterator[str]:
    seen: set[str] = set()
    while len(seen) < count:
        start, digits = chance.choice(MOBILES)
        phone = f"{start}{chance.randrange(10**digits):0{digits}}".replace(" ", "")
        if phone not in seen:
            seen.add(phone)
            yield phone


def _dressed(phone: str, chance: random.Random) -> str:
    """The same person, as other people would type the number."""
    head, tail = phone[:-4], phone[-4:]
    if phone.startswith("+5255"):
        return f"+521{phone[3:]}"  # as written before Mexico gave up its mobile prefix
    return chance.choice(
        [phone, f"{head} {tail}", f"{head}-{tail}", f" {head[:3]} ({head[3:]}) {tail} "]
    )


def _at_least_one(count: int, share: float) -> int:
    return max(1, round(count * share))
