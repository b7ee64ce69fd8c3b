"""Numbers as people and spreadsheets write them."""

import re

import phonenumbers
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.phones import ROUNDED, Invalid, Phone, is_country, normalise, prefixes

MARKED = "\u202a+1 202-555-0123\u202c"
WIDE = "".join(chr(ord(sign) + 0xFEE0) for sign in "+12025550123")  # full-width forms


@pytest.mark.parametrize(
    ("text", "country", "digits"),
    [
        ("+12025550123", None, "12025550123"),
        ("12025550123", None, "12025550123"),
        ("+1 (202) 555-0123", None, "12025550123"),
        ("+1.202.555.0123", None, "12025550123"),
        ("  +12025550123\t", None, "12025550123"),
        # Invisible marks, other spaces, other hyphens.
        (MARKED, None, "12025550123"),
        ("\u2068+1\u00a0202\u00a0555\u00a00124\u2069", None, "12025550124"),
        ("\u200e+12025550125\u200f", None, "12025550125"),
        ("+1 202\u2011555\u20130123", None, "12025550123"),
        # Digits of other scripts.
        ("+٢٠١٠٠١٢٣٤٥٦٧", None, "201001234567"),
        (WIDE, None, "12025550123"),
        # National numbers.
        ("07700 900123", "GB", "447700900123"),
        ("447700900123", "GB", "447700900123"),
        # With its calling code, but no plus, as other systems export it.
        ("4915112345678", "DE", "4915112345678"),
        ("4917612345678", "DE", "4917612345678"),
        ("4915112345678.0", "DE", "4915112345678"),
        ("62 812-345-678", "ID", "62812345678"),
        ("0491 602082950", "DE", "49491602082950"),
        ("278112345", "ZA", "27278112345"),  # a landline in Namaqualand
        ("393 123 4567", "IT", "393931234567"),
        ("+44 (0)7700 900123", None, "447700900123"),
        ("00447700900123", "DE", "447700900123"),
        ("00447700900123", None, "447700900123"),
        ("+49 30 901820-123", None, "4930901820123"),
        ("+800 1234 5678", None, "80012345678"),
        # What other systems put around a number.
        ("'+447700900123", None, "447700900123"),
        ('="+447700900124"', None, "447700900124"),
        ("tel:+44-7700-900125", None, "447700900125"),
        ("whatsapp:+447700900126", None, "447700900126"),
        ("447700900127@s.whatsapp.net", "DE", "447700900127"),
        ("https://wa.me/447700900128", "DE", "447700900128"),
        ("12025550123.0", None, "12025550123"),
        ("+12025550124.0", None, "12025550124"),
        # Mexico, Argentina, Brazil.
        ("+5215512345678", None, "525512345678"),
        ("52 55 1234 5678", None, "525512345678"),
        ("+541123456789", None, "5491123456789"),
        ("+5491123456789", None, "5491123456789"),
        ("011 15-2345-6789", "AR", "5491123456789"),
        ("+55 31 98765-4321", None, "5531987654321"),
        ("+55 31 8765-4321", None, "553187654321"),
        ("+55 31 3222-1234", None, "553132221234"),
    ],
)
def test_read(text, country, digits):
    found = normalise(text, country)
    assert isinstance(found, Phone), found
    assert found.digits == digits


@pytest.mark.parametrize(
    ("text", "country", "reason"),
    [
        ("", None, "phone missing"),
        ("   ", None, "phone missing"),
        ("''", None, "phone missing"),
        ("call me", None, "phone malformed"),
        ("+", None, "phone malformed"),
        ("+1 202 555 012²", None, "phone malformed"),
        ("+1 202 555 0125 mobile", None, "phone malformed"),
        ("+1 202-555-0123 / 0124", None, "more than one number"),
        ("+12025550123;+12025550124", None, "more than one number"),
        ("+1 202-555-0123 ext. 45", None, "number has an extension"),
        ("+1 202-555-0124x45", None, "number has an extension"),
        ("07700 900123", None, "national number, and the campaign has no default_country"),
        ("044 55 1234 5678", "MX", "not a valid number"),
        ("12025550123", "GB", "not a valid number"),
        ("+4915", None, "not a valid number"),
        ("+9991234567", None, "not a valid number"),
        ("+10000000000", None, "not a valid number"),
        ("+120255501230124", None, "not a valid number"),
        ("+43 1110", None, "not a valid number"),
        ("12", None, "not a valid number"),
        ("1" * 400, "GB", "not a valid number"),
    ],
)
def test_refused(text, country, reason):
    assert normalise(text, country) == Invalid(reason)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("+5215512345678", "+525512345678"),
        ("+541123456789", "+5491123456789"),
        ("+5531987654321", "+553187654321"),
    ],
)
def test_forms_of_one_number_are_one_person(one, other):
    first, second = normalise(one, None), normalise(other, None)
    assert isinstance(first, Phone)
    assert isinstance(second, Phone)
    assert first.person == second.person


def test_a_landline_is_not_the_mobile_with_a_nine_before_it():
    assert normalise("+553132221234", None) == Phone("553132221234", "553132221234")


@pytest.mark.parametrize("region", sorted(phonenumbers.SUPPORTED_REGIONS))
def test_the_example_of_every_region_is_read_as_the_library_does(region):
    example = phonenumbers.example_number_for_type(region, phonenumbers.PhoneNumberType.MOBILE)
    example = example or phonenumbers.example_number(region)
    written = phonenumbers.format_number(example, phonenumbers.PhoneNumberFormat.INTERNATIONAL)
    expected = phonenumbers.format_number(example, phonenumbers.PhoneNumberFormat.E164)
    found = normalise(written, None)
    assert isinstance(found, Phone), written
    assert f"+{found.digits}" == expected


@pytest.mark.parametrize("region", sorted(phonenumbers.SUPPORTED_REGIONS))
def test_the_example_of_every_region_needs_no_plus(region):
    example = phonenumbers.example_number_for_type(region, phonenumbers.PhoneNumberType.MOBILE)
    if example is None:
        pytest.skip("the library knows no mobile there")
    digits = phonenumbers.format_number(example, phonenumbers.PhoneNumberFormat.E164)
    national = phonenumbers.format_number(example, phonenumbers.PhoneNumberFormat.NATIONAL)
    assert normalise(digits[1:], region) == normalise(digits, None)
    assert normalise(national, region) == normalise(digits, None)


@given(st.text(), st.sampled_from([None, "GB", "MX"]))
def test_whatever_is_read_can_be_sent_to(text, country):
    found = normalise(text, country)
    if isinstance(found, Phone):
        assert re.fullmatch(r"[1-9][0-9]{6,14}", found.digits, re.ASCII)
        assert normalise(f"+{found.digits}", None) == found


def test_countries_are_two_capital_letters():
    assert is_country("GB")
    assert not is_country("gb")
    assert not is_country("XX")


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("+44 7400 123456", ("447400123456.",)),
        ("+49, +44-7400-123 456,1", ("49", "447400123456.", "1")),
        # A valid landline by itself, and the beginning of longer ones.
        ("+49 30 123, +49 30 123*, +49 30*", ("4930123.", "4930123", "4930")),
        ("0049 151", ("49151",)),
        ("+49,", ("49",)),
        # As uploads write them down.
        ("+521 55 1234 5678, +54 11 2345 6789", ("525512345678.", "5491123456789.")),
        ("+52 55, +54, +54 9 11", ("5255", "54", "54911")),
    ],
)
def test_beginnings_of_numbers(text: str, digits: tuple[str, ...]) -> None:
    assert prefixes(text) == digits


@pytest.mark.parametrize("text", ["", " ", ",", " , "])
def test_a_list_that_names_nobody_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is empty"):
        prefixes(text)


@pytest.mark.parametrize(
    "entry",
    [
        *("all", "*", "+", "00", "4", "+2", "+999", "4" * 16, "+4\u00b2"),
        *("07400 123456", "+44 7400 12345a", "+49 +44", "+49;+44"),
    ],
)
def test_what_begins_no_number_is_refused_without_being_shown(entry: str) -> None:
    with pytest.raises(ValueError, match=r"^entry 2 is no number") as raised:
        prefixes(f"+49,{entry}")
    assert entry not in str(raised.value).partition("2")[2]


@pytest.mark.parametrize("entry", ["+54 11", "+52 1 55", "+54 11*"])
def test_a_beginning_that_uploads_rewrite_is_refused_with_the_cure(entry: str) -> None:
    with pytest.raises(ValueError, match=r"^entry 2 begins nobody: write \+549"):
        prefixes(f"+49, {entry}")


@pytest.mark.parametrize(
    "text", ["3.46123E+10", "1.2025550123E10", "3,46123e10", "4E+11", '="3.46123E+10"']
)
@pytest.mark.parametrize("country", [None, "ES"])
def test_what_a_spreadsheet_has_rounded(text, country):
    assert normalise(text, country) is ROUNDED
