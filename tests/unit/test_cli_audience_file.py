"""The demo's audience: as many good and bad rows as it says, the same for the same seed."""

import csv
from pathlib import Path

import phonenumbers
import pytest

from services.cli.audience_file import BAD_PHONES, AudienceFile, write_audience


@pytest.fixture
def audience(tmp_path: Path) -> AudienceFile:
    return write_audience(tmp_path / "audience.csv", valid=1000, seed=7)


def phones_in(file: AudienceFile) -> list[str]:
    with file.path.open(encoding="utf-8", newline="") as lines:
        return [row["phone"] for row in csv.DictReader(lines)]


def is_valid(text: str) -> bool:
    try:
        number = phonenumbers.parse(text)
    except phonenumbers.NumberParseException:
        return False
    return text.isascii() and phonenumbers.is_valid_number(number)


def test_it_holds_what_it_says(audience: AudienceFile) -> None:
    phones = phones_in(audience)
    assert (audience.valid, audience.bad, audience.repeated) == (1000, 20, 10)
    assert len(phones) == 1030
    assert sum(phone in BAD_PHONES for phone in phones) == audience.bad


def test_good_numbers_are_good_and_distinct(audience: AudienceFile) -> None:
    good = [phone for phone in phones_in(audience) if phone not in BAD_PHONES]
    # Mexico's abolished prefix is valid by our rules only.
    people = {
        "+" + "".join(filter(str.isdigit, phone)).replace("52155", "5255", 1) for phone in good
    }
    assert len(people) == audience.valid
    assert all(is_valid(person) for person in people)


def test_bad_numbers_are_bad() -> None:
    assert not any(is_valid(phone) for phone in BAD_PHONES)


def test_a_seed_makes_the_same_file(tmp_path: Path, audience: AudienceFile) -> None:
    same = write_audience(tmp_path / "same.csv", valid=1000, seed=7)
    other = write_audience(tmp_path / "other.csv", valid=1000, seed=8)
    assert same.path.read_bytes() == audience.path.read_bytes() != other.path.read_bytes()
