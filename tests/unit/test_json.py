"""JSON lines and arrays become the recipients that the same rows of CSV would."""

import json
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.sender.audience import elements
from services.sender.audience.elements import ARRAY_LIMIT, FileTooLarge
from services.sender.audience.files import Format, Parser, parser_for
from services.sender.audience.records import ROW_LIMIT, FileRefused
from services.sender.audience.rows import RAW_LIMIT, Batch

DIRTY = [
    '{"phone": "+1 202 555 0123", "external_id": "A", "Name ": "Ana, \\"the\\" first]"}',
    '{"PHONE": 12025550124, "n": 1.5, "yes": true, "none": null, "metadata": {"id": 7}}',
    '{"phone": "nonsense"}',
    '{"name": "Ünal"}',
    '{"phone": "+12025550125", "list": [1, {"a": "}"}]}',
    "[1, 2]",
    '"text"',
    "3",
    '{"msisdn": "+12025550126", "mobile": "+12025550127", "emoji": "😀\u2028"}',
    "{}",
]
LINES = "\n".join([DIRTY[0], "", "  ", *DIRTY[1:]]).encode()
ARRAY = f" [\n{' ,'.join(DIRTY)} ]\r\n".encode()


def parse(data: bytes, kind: Format = Format.NDJSON, country: str | None = None) -> Batch:
    return parser_for(kind, country).feed(data, final=True)


def array(data: bytes) -> Batch:
    return parse(data, Format.JSON)


def in_pieces(parser: Parser, pieces: list[bytes]) -> Batch:
    whole = Batch()
    for place, piece in enumerate(pieces):
        part = parser.feed(piece, final=place == len(pieces) - 1)
        whole.recipients.extend(part.recipients)
        whole.rejects.extend(part.rejects)
    return whole


def feed_often(parser: Parser, data: bytes) -> None:
    for _ in range(20):
        parser.feed(data)


def reason(line: str | bytes) -> str:
    """Why the one row of a file is rejected, the same in both formats."""
    line = line if isinstance(line, bytes) else line.encode()
    (found,) = {parse(line).rejects[0][1], array(b"[" + line + b"]").rejects[0][1]}
    return found


def test_rows_without_what_the_template_needs():
    found = [
        {"name": "Ana", "city": ""},
        {"NAME": "Bea"},
        {"city": "Pune"},
        {"name": " ", "city": "Pune"},
        {"name": None, "city": "Pune"},
    ]
    lines = [json.dumps({"phone": f"+1202555012{n}", **one}) for n, one in enumerate(found)]
    for kind, data in ((Format.NDJSON, "\n".join(lines)), (Format.JSON, f"[{','.join(lines)}]")):
        parser = parser_for(kind, None, {"name": True, "city": False})
        batch = parser.feed(data.encode(), final=True)
        assert [reason for _, reason, _ in batch.rejects] == [
            "no value for city",
            *("no value for name",) * 3,
        ]
        assert [one[4] for one in batch.recipients] == ['{"name":"Ana","city":""}']


def test_a_template_may_name_the_keys_that_are_more_than_parameters():
    parser = parser_for(Format.NDJSON, None, {"external_id": True, "phone": True})
    batch = parser.feed(b'{"phone": 12025550123, "external_id": "A7"}', final=True)
    (one,) = batch.recipients
    assert (one[3], json.loads(one[4])) == ("A7", {"phone": "12025550123", "external_id": "A7"})


def test_dirty_lines():
    batch = parse(LINES)
    first, second, third = batch.recipients
    assert first[0] == 1
    assert first[2:4] == ("12025550123", "A")
    assert json.loads(first[4]) == {"name": 'Ana, "the" first]'}
    assert first[5:] == (None, DIRTY[0])
    assert second[0] == 4  # blank lines count
    assert second[2:4] == ("12025550124", None)
    assert json.loads(second[4]) == {"n": "1.5", "yes": "true", "none": ""}
    assert second[5] == '{"id":7}'
    assert third[2] == "12025550126"
    assert json.loads(third[4]) == {"mobile": "+12025550127", "emoji": "😀\u2028"}
    assert [(number, why) for number, why, _ in batch.rejects] == [
        (5, "phone malformed"),
        (6, "phone missing"),
        (7, "list is neither UTF-8 text nor a number"),
        (8, "not a JSON object in UTF-8"),
        (9, "not a JSON object in UTF-8"),
        (10, "not a JSON object in UTF-8"),
        (12, "phone missing"),
    ]
    assert batch.rejects[0][2] == '{"phone": "nonsense"}'


def test_an_array_says_the_same_with_places_for_lines():
    def without_number(batch: Batch) -> Batch:
        return Batch(
            [("", *row[1:]) for row in batch.recipients], [("", *row[1:]) for row in batch.rejects]
        )

    assert without_number(array(ARRAY)) == without_number(parse(LINES))
    assert [row[0] for row in array(ARRAY).recipients] == [1, 2, 9]
    assert [row[0] for row in array(ARRAY).rejects] == [3, 4, 5, 6, 7, 8, 10]


@pytest.mark.parametrize(("kind", "data"), [(Format.NDJSON, LINES), (Format.JSON, ARRAY)])
@given(cuts=st.sets(st.integers(0, len(LINES)), max_size=8))
def test_where_the_file_is_cut_makes_no_difference(kind, data, cuts):
    places = [0, *sorted(cuts), max(len(data), *cuts, 0)]
    pieces = [data[start:end] for start, end in pairwise(places)]
    assert in_pieces(parser_for(kind, None), pieces) == parse(data, kind)


@pytest.mark.parametrize(("kind", "data"), [(Format.NDJSON, LINES), (Format.JSON, ARRAY)])
def test_one_byte_at_a_time(kind, data):
    pieces = [bytes([byte]) for byte in data]
    assert in_pieces(parser_for(kind, None), pieces) == parse(data, kind)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b""])
def test_marks_and_endings(mark, ending):
    row = b'{"phone": "+12025550123"}'
    assert len(parse(mark + row + b"\r\n" + row + ending).recipients) == 2
    assert len(array(mark + b"[" + row + b"," + row + b"]" + ending).recipients) == 2


def test_national_numbers_need_the_country():
    assert parse(b'{"phone": "07700 900123"}', country="GB").recipients[0][2] == "447700900123"
    assert reason('{"phone": "07700 900123"}').startswith("national number")


def test_a_number_in_a_float_is_read():
    assert parse(b'{"phone": 4.915112000001e12}').recipients[0][2] == "4915112000001"


@pytest.mark.parametrize(
    "number",
    ["10.10", "0.1000", "1e5", "-0", "12345678901234567.89", "123456789012345678901234567890"],
)
def test_numbers_keep_their_spelling(number):
    line = f'{{"phone": "+12025550123", "external_id": {number}, "price": {number}}}'
    (row,) = parse(line.encode()).recipients
    assert (row[3], json.loads(row[4])) == (number, {"price": number})


def test_metadata_may_come_as_single_keys():
    line = (
        '{"phone": "+12025550123", "metadata": {"id": 7, "a": 1}, "metadata.Clinic No": "North",'
        ' "Metadata.a": 2.50, "metadata.none": null, "time": "10:30", "b": "{\\"b\\":1}"}'
    )
    (row,) = parse(line.encode()).recipients
    assert json.loads(row[4]) == {"time": "10:30", "b": '{"b":1}'}
    assert json.loads(row[5]) == {"id": 7, "a": "2.50", "Clinic No": "North"}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"phone": "\xff"}', "phone is neither UTF-8 text nor a number"),
        (b'{"\xff": 1}', "not a JSON object in UTF-8"),
        ('{"phone": "+12025550123", "Name": 1, " name": 2}', "key name appears twice"),
        ('{"phone": "+12025550123", "phone": "+12025550124"}', "key phone appears twice"),
        ('{"Phone": "+12025550123", "Ph\\u006fne": [{"a": 1}]}', "key phone appears twice"),
        ('{"phone": 1, "metadata": {"a": 1}, "Metadata": null}', "key metadata appears twice"),
        ('{"phone": 1, "metadata.a": 1, "metadata.A": 2}', "key metadata.a appears twice"),
        ('{"phone": 1, "metadata. ": 1}', "key metadata. does not say which entry it is"),
        (
            '{"phone": "+12025550123", "metadata.a": "\\u0000"}',
            "metadata.a holds a NUL character",
        ),
        ('{"phone": "+12025550123", "a": "\\u0000"}', "a holds a NUL character"),
        ('{"phone": "+12025550123", "a\\u0000": 1}', "a\ufffd holds a NUL character"),
        ('{"phone": "+12025550123", "a": NaN}', "not a JSON object in UTF-8"),
        ('{"phone": "+12025550123", "a": 1e999}', "a is neither UTF-8 text nor a number"),
        ('{"phone": "+12025550123", "metadata": {"a": [1]}}', "metadata is not a flat JSON object"),
        ('{"phone": "+12025550123", "metadata": "a"}', "metadata is not a flat JSON object"),
        (
            '{"phone": "+12025550123", "metadata": {"a": "\\u0000"}}',
            "metadata holds a NUL character",
        ),
        (
            json.dumps({"phone": "+12025550123", "metadata": {"a": "x" * 1100}}),
            "metadata is larger than 1024 bytes",
        ),
        (
            json.dumps({"phone": "+12025550123", "external_id": "x" * 256}),
            "external_id is longer than 255 characters",
        ),
        (json.dumps({str(n): n for n in range(101)}), "101 keys; at most 100 are taken"),
        ('{"phone": true}', "phone malformed"),
        ('{"phone": {"a": 1}}', "phone is neither UTF-8 text nor a number"),
    ],
)
def test_a_row_that_is_rejected_says_why(line, why):
    assert reason(line) == why


@pytest.mark.parametrize("text", ['{"a": "\\ud800"}', '{"a": "\\udc00"}', '{"\\ud800": 1}'])
def test_half_a_character_is_rejected(text):
    assert reason(text)


def test_metadata_may_be_null_or_empty():
    for nothing in ("null", "{}"):
        line = f'{{"phone": "+12025550123", "metadata": {nothing}}}'.encode()
        assert parse(line).recipients[0][5] is None


def test_deep_nesting_costs_its_row_only_or_its_file():
    deep = "[" * 30_000 + "]" * 30_000
    line = f'{{"phone": "+12025550123", "a": {deep}}}'
    good = '{"phone": "+12025550123"}'
    batch = parse(f"{line}\n{good}".encode())
    assert (len(batch.recipients), len(batch.rejects)) == (1, 1)
    with pytest.raises(FileRefused, match="item 1 is nested too deeply"):
        array(f"[{line},{good}]".encode())


def test_the_raw_row_is_kept_in_bounds():
    text = json.dumps({"phone": "x", "a": "y" * 5000})
    assert parse(text.encode()).rejects[0][2] == text[:RAW_LIMIT]


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (Format.NDJSON, b"", "the file is empty"),
        (Format.NDJSON, b"\n \n", "the file is empty"),
        (Format.NDJSON, b"\xff\xfe{\0", "UTF-16"),
        (Format.NDJSON, b"[\n{}]", "a JSON array is application/json"),
        (Format.NDJSON, b"{}\n" + b"x" * (ROW_LIMIT + 1), "line 2: the row is longer than 64 KiB"),
        (Format.NDJSON, b"x" * (ROW_LIMIT + 1) + b"\n", "line 1: the row is longer than 64 KiB"),
        (Format.JSON, b"", "the file is empty"),
        (Format.JSON, b" \n", "the file is empty"),
        (Format.JSON, b"{}\n{}", "it does not begin with ["),
        (Format.JSON, b"[", "item 1 is no JSON, or the file ends within it"),
        (Format.JSON, b"[{}", "item 1 is no JSON, or the file ends within it"),
        (Format.JSON, b"[{},", "item 2 is no JSON"),
        (Format.JSON, b"[{},]", "item 2 is no JSON"),
        (Format.JSON, b"[{} {}]", "item 1 is not followed by a comma"),
        (Format.JSON, b"[{}, wrong]", "item 2 is no JSON"),
        (Format.JSON, b"[]]", "something follows"),
        (Format.JSON, b"[{}] {}", "something follows"),
        (Format.JSON, b'["' + b"x" * ROW_LIMIT + b'"]', "item 1 is longer than 64 KiB"),
    ],
)
def test_a_file_that_is_refused_says_why_and_where(kind, data, said):
    with pytest.raises(FileRefused) as refused:
        parse(data, kind)
    assert said in refused.value.detail


def test_an_empty_array_has_no_rows():
    assert array(b"[ ]") == Batch()


@pytest.mark.parametrize(("kind", "begun"), [(Format.NDJSON, b'{"a":"'), (Format.JSON, b'[{"a":"')])
def test_what_never_ends_is_not_collected_for_ever(kind, begun):
    parser = parser_for(kind, None)
    parser.feed(begun)
    with pytest.raises(FileRefused, match="64 KiB"):
        feed_often(parser, b"x" * 8192)


def test_a_mistake_in_an_array_is_found_before_the_end_of_a_long_file():
    parser = parser_for(Format.JSON, None)
    parser.feed(b'[{"a" 1},')
    with pytest.raises(FileRefused, match="item 1 is no JSON"):
        feed_often(parser, b'{"phone": 1},' * 1000)


def test_an_array_is_bounded(monkeypatch):
    assert ARRAY_LIMIT == 104_857_600
    monkeypatch.setattr(elements, "ARRAY_LIMIT", 1 << 20)
    parser = parser_for(Format.JSON, None)
    item = b'{"phone": "' + b"x" * 50_000 + b'"}'
    parser.feed(b"[" + b",".join([item] * 20))
    with pytest.raises(FileTooLarge, match="a JSON array may have 1 MiB"):
        parser.feed(b"," + item)


@pytest.mark.parametrize("kind", [Format.NDJSON, Format.JSON])
def test_memory_does_not_grow_with_the_file(kind):
    row = json.dumps({"phone": "+12025550123", "name": "x" * 200})
    ending = "\n" if kind is Format.NDJSON else ","
    piece = (row + ending).encode() * 100
    parser = parser_for(kind, None)
    parser.feed(b"[" if kind is Format.JSON else b"")
    tracemalloc.start()
    try:
        parser.feed(piece)
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(50):
            parser.feed(piece)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < len(piece)
