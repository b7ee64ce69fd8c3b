"""Reads a phone number as people and spreadsheets write it, or says why it is none."""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache

import phonenumbers
from phonenumbers import COUNTRY_CODE_TO_REGION_CODE, PhoneMetadata

_TYPES = (
    *("fixed_line", "mobile", "toll_free", "premium_rate", "shared_cost"),
    *("personal_number", "voip", "pager", "uan", "voicemail"),
)
# Ends a whole number in a list of beginnings: in some countries longer numbers begin with it.
_END = "."
_SEPARATORS = re.compile(r"[ \-().]+")
_DIGITS = re.compile(r"\+?[0-9]+", re.ASCII)
_BEGINNING = re.compile(r"[1-9][0-9]{0,14}", re.ASCII)
# No number is kept so: of Argentina with a 9, of Mexico without the 1 (see _phone, _international).
_REWRITTEN = re.compile(r"(?:54[0-8]|521)[0-9]*", re.ASCII)
_E164 = re.compile(r"[1-9][0-9]{6,14}", re.ASCII)
# What other systems put around a number: spreadsheet guards, addresses, chat ids, links.
_GUARD = re.compile(r"=?[\"']*(.*?)[\"']*")
_ADDRESS = re.compile(r"(?:tel|sms|whatsapp):(.*)", re.IGNORECASE)
_CHAT = re.compile(r"([0-9]+)@(?:s\.whatsapp\.net|c\.us)|(?:https?://)?wa\.me/\+?([0-9]+)")
_FLOAT = re.compile(r"(\+?[0-9]{7,15})\.0+", re.ASCII)
# What a spreadsheet makes of a long number; its last digits are gone.
_ROUNDED = re.compile(r"[0-9](?:[.,][0-9]+)?E\+?[0-9]{1,2}", re.IGNORECASE | re.ASCII)
_EXTENSION = re.compile(r"[0-9)]\s*(?:ext(?:ension|n)?|x|#)[.:\s]*[0-9]+", re.IGNORECASE)
_SEVERAL = re.compile(r"[0-9].*(?:[/;,|&+]|\b(?:or|and)\b).*[0-9]", re.IGNORECASE)
# Hyphens that typesetting puts in place of the plain one.
_HYPHENS = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"))


@dataclass(frozen=True, slots=True)
class Phone:
    """`digits` is what is sent to; `person` is the same for all forms of one's number."""

    digits: str
    person: str


@dataclass(frozen=True, slots=True)
class Invalid:
    """Why a text is no number that can be sent to."""

    reason: str


MISSING = Invalid("phone missing")
MALFORMED = Invalid("phone malformed")
SEVERAL = Invalid("more than one number")
ROUNDED = Invalid("a spreadsheet has rounded this number: format its column as text")
EXTENSION = Invalid("number has an extension")
NO_COUNTRY = Invalid("national number, and the campaign has no default_country")
NOT_IN_USE = Invalid("not a valid number")


def is_country(code: str) -> bool:
    """Whether a two-letter code may be a campaign's `default_country`."""
    return code in phonenumbers.SUPPORTED_REGIONS


def normalise(text: str, default_country: str | None) -> Phone | Invalid:
    """The number in `text`; one without a plus is read as a number of `default_country`.

    Without a default country, digits that begin with a calling code are taken as international.
    """
    plain = text if text.isascii() else _to_ascii(text)
    plain = plain.strip()
    bare = _SEPARATORS.sub("", plain)
    if not _DIGITS.fullmatch(bare) or _FLOAT.fullmatch(plain):
        unwrapped = _unwrap(plain)
        if isinstance(unwrapped, Invalid):
            return unwrapped
        bare = unwrapped
    if bare.startswith("00") and not default_country:
        bare = f"+{bare[2:]}"
    if bare.startswith("+"):
        return _international(bare[1:])
    return _national(bare, default_country) if default_country else _undeclared(bare)


def prefixes(text: str) -> tuple[str, ...]:
    """What the numbers meant by a list of numbers and beginnings of numbers begin with.

    They are digits; of a whole number all of them and a dot, which stands behind the digits of
    whom it is compared with too. A star makes a beginning of what is a whole number as well.

    Raises `ValueError`, without a number in it, for a list that means nobody or cannot be meant.
    """
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if not entries:
        raise ValueError("is empty; unset it to send to everyone")
    found = tuple(_prefix(entry) for entry in entries)
    if "" in found:
        place = found.index("") + 1
        raise ValueError(f"entry {place} is no number with its country code, nor begins one")
    for place, digits in enumerate(found, 1):
        if _REWRITTEN.fullmatch(digits):
            raise ValueError(f"entry {place} begins nobody: write +549... and +52 without a 1")
    return found


def _prefix(text: str) -> str:
    """Empty when no number can begin so."""
    whole = normalise(text, None)
    if isinstance(whole, Phone):
        return f"{whole.digits}{_END}"
    bare = _SEPARATORS.sub("", _to_ascii(text).removesuffix("*"))
    digits = bare.removeprefix("+" if bare.startswith("+") else "00")
    return digits if _BEGINNING.fullmatch(digits) and _calling_code(digits) else ""


def _to_ascii(text: str) -> str:
    """Decimal digits of every script as ASCII; invisible marks away. Superscripts are no digits."""
    text = unicodedata.normalize("NFC", text).translate(_HYPHENS).replace("\uff0b", "+")
    return "".join(_ascii_of(letter) for letter in text)


def _ascii_of(letter: str) -> str:
    digit = unicodedata.decimal(letter, None)
    if digit is not None:
        return str(digit)
    category = unicodedata.category(letter)
    return "" if category == "Cf" else " " if category == "Zs" else letter


def _unwrap(text: str) -> str | Invalid:
    """Digits, with a plus where the form says that they are international."""
    guarded = _GUARD.fullmatch(text)
    text = guarded[1].strip() if guarded else text
    if not text:
        return MISSING
    if chat := _CHAT.fullmatch(text):
        return f"+{chat[1] or chat[2]}"
    if address := _ADDRESS.fullmatch(text):
        text = address[1]
    if number := _FLOAT.fullmatch(text):
        return number[1]
    bare = _SEPARATORS.sub("", text)
    return bare if _DIGITS.fullmatch(bare) else _why_none(text)


def _why_none(text: str) -> Invalid:
    if _ROUNDED.fullmatch(text):
        return ROUNDED
    if _EXTENSION.search(text):
        return EXTENSION
    return SEVERAL if _SEVERAL.search(text) else MALFORMED


def _undeclared(digits: str) -> Phone | Invalid:
    return NO_COUNTRY if digits.startswith("0") else _international(digits)


def _international(digits: str) -> Phone | Invalid:
    if digits.startswith("521") and len(digits) == 13:
        digits = f"52{digits[3:]}"  # Mexico abolished the 1 in 2019, and the library refuses it
    code = _calling_code(digits)
    if code is None:
        return NOT_IN_USE
    if _pattern(code).fullmatch(digits, len(code)):
        return _phone(digits)
    return _asked(f"+{digits}", None)


def _national(digits: str, country: str) -> Phone | Invalid:
    return _international(digits) if _has_code(digits, country) else _asked(digits, country)


def _has_code(digits: str, country: str) -> bool:
    """Whether digits that may also be a landline are a mobile behind its own calling code.

    Where landlines are of any length, as in Germany, the library takes all of it as one. No longer
    than the country's mobiles, it may well be one: area codes look like calling codes too.
    """
    code = str(phonenumbers.country_code_for_region(country))
    if not digits.startswith(code):
        return False
    mobile, usual = _mobile(country)
    behind = mobile.fullmatch(digits, len(code)) is not None
    return behind and len(digits) > usual and mobile.fullmatch(digits) is None


def _asked(text: str, country: str | None) -> Phone | Invalid:
    """What the library says: slower than the pattern, but it knows trunk prefixes."""
    try:
        number = phonenumbers.parse(text, country)
    except phonenumbers.NumberParseException:
        return NOT_IN_USE
    digits = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)[1:]
    code = str(number.country_code)
    return _phone(digits) if _pattern(code).fullmatch(digits, len(code)) else NOT_IN_USE


def _phone(digits: str) -> Phone | Invalid:
    if not _E164.fullmatch(digits):
        return NOT_IN_USE
    if digits.startswith("54") and len(digits) == 12:
        digits = f"549{digits[2:]}"  # Argentina: mobiles are called with a 9 from abroad
    return Phone(digits, _person(digits))


def _person(digits: str) -> str:
    """Brazil put a 9 before its mobiles; accounts exist in both forms, so neither is rewritten."""
    brazilian_mobile = digits.startswith("55") and len(digits) == 13 and digits[4] == "9"
    return digits[:4] + digits[5:] if brazilian_mobile else digits


def _calling_code(digits: str) -> str | None:
    # No calling code begins with another one.
    for length in (1, 2, 3):
        if digits[:length] and int(digits[:length]) in COUNTRY_CODE_TO_REGION_CODE:
            return digits[:length]
    return None


@cache
def _mobile(country: str) -> tuple[re.Pattern[str], int]:
    """The mobiles of a country without its calling code, and how long they usually are."""
    known = getattr(_metadata(country, 0), "mobile", None)
    pattern, example = (known.national_number_pattern, known.example_number) if known else ("", "")
    return re.compile(pattern or "(?!)", re.ASCII), len(example or "")


@cache
def _pattern(calling_code: str) -> re.Pattern[str]:
    """The national numbers behind a calling code, from the library's own metadata.

    Every number in a range that the metadata knows, and what has the length of a mobile and the
    country's general shape: ranges are handed out before any metadata knows them, and a person
    refused here is a person never reached, while Meta itself refuses what does not exist.
    """
    patterns: set[str] = set()
    for region in COUNTRY_CODE_TO_REGION_CODE[int(calling_code)]:
        patterns |= _shapes(_metadata(region, int(calling_code)))
    return re.compile("|".join(f"(?:{one})" for one in sorted(patterns)), re.ASCII)


def _metadata(region: str, code: int) -> PhoneMetadata | None:
    if region == "001":
        return PhoneMetadata.metadata_for_nongeo_region(code)
    return PhoneMetadata.metadata_for_region(region)


def _shapes(metadata: PhoneMetadata | None) -> set[str]:
    descriptions = [getattr(metadata, kind, None) for kind in _TYPES]
    known = {one.national_number_pattern for one in descriptions if one is not None}
    mobile, general = getattr(metadata, "mobile", None), getattr(metadata, "general_desc", None)
    lengths = mobile.possible_length if mobile is not None and general is not None else ()
    shape = general.national_number_pattern if general is not None else None
    known |= {f"(?=[0-9]{{{n}}}$)(?:{shape})" for n in lengths if n > 0 and shape}
    return {one for one in known if one}
