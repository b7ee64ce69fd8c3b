"""Files as they come: cut anywhere, in every dialect, with every kind of dirt."""

import itertools
import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.sender.audience.records import ROW_LIMIT, FileRefused
from services.sender.audience.rejects import harmless
from services.sender.audience.rows import NOTHING, RAW_LIMIT, Batch, RowParser
from shared.domain.phones import Phone, normalise

DIRTY = (
    (
        '\ufeff"phone";"Name";note\r\n'
        '+12025550123;Ana;"line one\r\nline ""two"""\r\n'
        ";;\r\n"
        '+12025550124;B"ea;\r\n'
        ";Bea\r\n"
        "  ;  \r\n"
    ).encode()
    + b'+12025550125;\xff\xfe;x\r\n+12025550126;a\x00b\r\n+1202;a;b;c;d\r\n"+12025550128";last'
)


def parse(data: bytes, country: str | None = None, needed: Mapping[str, bool] = NOTHING) -> Batch:
    return RowParser(country, needed).feed(data, final=True)


def parse_pieces(pieces: list[bytes]) -> Batch:
    parser, whole = RowParser(None), Batch()
    for piece in pieces:
        add(whole, parser.feed(piece))
    add(whole, parser.feed(b"", final=True))
    return whole


def add(whole: Batch, part: Batch) -> None:
    whole.recipients.extend(part.recipients)
    whole.rejects.extend(part.rejects)


def reasons(batch: Batch) -> dict[int, str]:
    return {row: reason for row, reason, _ in batch.rejects}


def parameters(batch: Batch) -> list[dict[str, str]]:
    return [json.loads(recipient[4]) for recipient in batch.recipients]


def test_a_dirty_file():
    batch = parse(DIRTY)
    assert [(row, phone) for row, _, phone, *_ in batch.recipients] == [
        (2, "12025550123"),
        (4, "12025550124"),
        (10, "12025550128"),
    ]
    assert parameters(batch) == [
        {"name": "Ana", "note": 'line one\r\nline "two"'},
        {"name": 'B"ea', "note": ""},
        {"name": "last", "note": ""},
    ]
    assert reasons(batch) == {
        5: "phone missing",
        7: "not UTF-8 text",
        8: "not UTF-8 text",
        9: "more cells than columns",
    }


@given(st.lists(st.integers(0, len(DIRTY)), max_size=40))
def test_where_the_file_is_cut_makes_no_difference(cuts):
    places = [0, *sorted(cuts), len(DIRTY)]
    pieces = [DIRTY[one:other] for one, other in itertools.pairwise(places)]
    assert parse_pieces(pieces) == parse(DIRTY)


def test_one_byte_at_a_time():
    assert parse_pieces([bytes([byte]) for byte in DIRTY]) == parse(DIRTY)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_dialects(delimiter, ending, mark):
    lines = [f"name{delimiter}Phone", f"Zoë{delimiter}+12025550123", ""]
    batch = parse((mark + ending.join(lines)).encode())
    assert parameters(batch) == [{"name": "Zoë"}]
    assert batch.rejects == []


@pytest.mark.parametrize("blank", ["\n", "\r\n", " \n\n", "\t\n"])
def test_blank_lines_before_the_header_say_nothing_of_the_delimiter(blank):
    file = f"{blank}phone;name\n+12025550123;Zoë\nx;y\n".encode()
    batch = parse(file)
    assert parameters(batch) == [{"name": "Zoë"}]
    assert reasons(batch) == {file.count(b"\n"): "phone malformed"}
    assert parse_pieces([bytes([byte]) for byte in file]) == batch


@pytest.mark.parametrize(
    ("header", "phone"),
    [("phone,number", 0), ("Mobile,x", 0), ("whatsapp,phone", 1), ("PHONE_NUMBER,msisdn", 0)],
)
def test_the_phone_column(header, phone):
    cells = ["x", "x"]
    cells[phone] = "+12025550123"
    assert len(parse(f"{header}\n{','.join(cells)}\n".encode()).recipients) == 1


def test_external_ids_may_come_first_and_be_empty():
    batch = parse(b"external_id,phone\nA-1,+12025550123\n,+12025550124\n")
    assert [recipient[3] for recipient in batch.recipients] == ["A-1", None]
    assert parameters(batch) == [{}, {}]


def test_an_external_id_is_bounded():
    row = b"phone,external_id\n+12025550123,%s\n"
    assert parse(row % (b"x" * 255)).recipients[0][3] == "x" * 255
    assert reasons(parse(row % (b"x" * 256))) == {2: "external_id is longer than 255 characters"}


def metadata(row: bytes, header: bytes = b"phone,Metadata,metadata.Clinic No,name") -> object:
    """What is kept of one row, or why it is rejected."""
    batch = parse(header + b"\n+12025550123," + row + b"\n")
    if batch.rejects:
        return batch.rejects[0][1]
    assert parameters(batch) == [{"name": "Ana"}]
    kept = batch.recipients[0][5]
    return None if kept is None else json.loads(kept)


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        (b",,Ana", None),
        (b",7,Ana", {"Clinic No": "7"}),
        (b'"{""a"": 1, ""b"": null}",7,Ana', {"a": 1, "b": None, "Clinic No": "7"}),
        (b'" { } ",,Ana', None),
        (b"x,,Ana", "metadata is not a flat JSON object"),
        (b'"[1]",,Ana', "metadata is not a flat JSON object"),
        (b'"{""a"": {}}",,Ana', "metadata is not a flat JSON object"),
        (b'"{""a"": NaN}",,Ana', "metadata is not a flat JSON object"),
        (b'"{""a"": ""\\ud800""}",,Ana', "metadata is not a flat JSON object"),
        (b'"{""a"": ""\\u0000""}",,Ana', "metadata holds a NUL character"),
        (b"," + b"x" * 1008 + b",Ana", {"Clinic No": "x" * 1008}),
        (b"," + b"x" * 1009 + b",Ana", "metadata is larger than 1024 bytes"),
    ],
)
def test_metadata_is_kept_beside_the_parameters(row, kept):
    assert metadata(row) == kept


def test_columns_without_a_name_are_left_out():
    batch = parse(b"phone,name,,\n+12025550123,Ana,x,\n")
    assert parameters(batch) == [{"name": "Ana"}]


def test_leading_blank_lines_are_no_header():
    assert len(parse(b"\n\nphone\n+12025550123\n").recipients) == 1


@pytest.mark.parametrize(
    ("data", "said", "columns"),
    [
        (b"", "empty", ()),
        (b"\n\n", "empty", ()),
        (b"name,city\nAna,Pune\n", "no column is named phone$", ("name", "city")),
        (b"phone,metadata.\n", "column metadata. does not say", ("phone", "metadata.")),
        (b"phone,metadata.a,Metadata.A\n", "appears twice", ("phone", "metadata.a", "Metadata.A")),
        (b"phone,code,Code\n", "column code appears twice", ("phone", "code", "Code")),
        (b"phone," + b",".join(b"c%d" % n for n in range(100)), "101 columns", ()),
        ("phone\tname\r\n+1\tZ".encode("utf-16"), "UTF-16", ()),
        (b"phone,\xff\n", "header is not UTF-8", ()),
        (b"phone,\x00\n", "header is not UTF-8", ()),
        (b'phone,name\n+1,"Ana\n+1,Bea\n', "line 2: a quote is opened", ()),
        (b'phone,name\n+1,"Ana\n' + b"+1,Bea\n" * 20_000, "line 2: field larger", ()),
        (b"phone,name\n+1,a\n+1," + b"x" * ROW_LIMIT + b"\n", "line 3: the row is longer", ()),
        (b"phone,name\n+1," + b"x" * 2 * ROW_LIMIT, "line 2: the row is longer", ()),
        (b'phone,name\n+1,"' + b"xxx\n" * 20_000 + b'"\n', "line 2: the row is longer", ()),
        (b"+12025550123,Ana\n+12025550124,Bea\n", "first row is no header", ()),
        (b"phone\r+12025550123\r+12025550124\r", r"line 1: a line ends in a bare CR", ()),
        (b"PK\x03\x04\x14\x00", "an Excel workbook; save it as CSV", ()),
        (b"\xd0\xcf\x11\xe0", "an Excel workbook; save it as CSV", ()),
        (b"phone,name\n", "a header and no rows", ()),
        (b"phone,name\n\n,\n", "a header and no rows", ()),
        (b"phone,name+12025550123,Ana+12025550124,Bea", "--data-binary", ()),
    ],
)
def test_a_file_that_is_refused_says_why_and_where(data, said, columns):
    with pytest.raises(FileRefused, match=said) as raised:
        parse(data)
    assert raised.value.columns == columns


@pytest.mark.parametrize(
    ("header", "lacking"),
    [("phone", "name, city"), ("Phone;NAME", "city"), ("phone;cities", "name")],
)
def test_a_file_without_a_column_of_the_template(header, lacking):
    with pytest.raises(FileRefused, match=f"lacks: {lacking}") as raised:
        parse(f"{header}\n+12025550123;Ana\n".encode(), needed={"name": True, "city": False})
    assert raised.value.columns == tuple(header.split(";"))


def test_cells_that_meta_would_refuse_as_empty():
    rows = ["Ana,", ",Pune", " \u00a0,Pune", "Bea", ",,"]
    lines = "".join(f"+1202555012{n},{row}\n" for n, row in enumerate(rows))
    batch = parse(f"phone,name,city\n{lines}".encode(), needed={"name": True, "city": False})
    assert parameters(batch) == [{"name": "Ana", "city": ""}, {"name": "Bea", "city": ""}]
    assert reasons(batch) == dict.fromkeys((3, 4, 6), "no value for name")


def test_a_template_may_name_the_columns_that_are_more_than_parameters():
    data = b"phone,external_id,metadata.a\n+1 202 555 0123,A7,x\n"
    batch = parse(data, needed={"external_id": True, "phone": True})
    assert parameters(batch) == [{"phone": "+1 202 555 0123", "external_id": "A7"}]
    assert batch.recipients[0][2:4] == ("12025550123", "A7")


def test_an_open_quote_is_found_before_the_end_of_a_long_file():
    parser = RowParser(None)
    parser.feed(b'phone,name\n+1,"Ana\n' + b"+1,Bea\n" * 5_000)
    parser.feed(b"+1,Bea\n" * 4_000)
    with pytest.raises(FileRefused, match="line 2: the row is longer"):
        parser.feed(b"+1,Bea\n" * 1_000)


def test_a_line_without_an_end_is_not_collected_for_ever():
    parser = RowParser(None)
    parser.feed(b"phone,name\n")
    with pytest.raises(FileRefused, match="line 2: the row is longer"):
        parser.feed(b"x" * (ROW_LIMIT + 1))


def test_the_raw_row_is_kept_in_bounds():
    batch = parse(b"phone,name\nx," + b"y" * 1000 + b"\n")
    assert [len(raw) for _, _, raw in batch.rejects] == [RAW_LIMIT]


def test_national_numbers_need_a_country():
    assert len(parse(b"phone\n07700 900123\n", "GB").recipients) == 1
    assert "default_country" in reasons(parse(b"phone\n07700 900123\n"))[2]


@pytest.mark.parametrize("cell", ["=1+1", "+12025550123", "-1", "@x", "\tx", "\rx"])
def test_cells_that_a_spreadsheet_would_run_are_made_text(cell):
    assert harmless(cell) == f"'{cell}"


@pytest.mark.parametrize("mark", [";", ",", "\t", "\n", "\r", ';"', ';""'])
def test_a_spreadsheet_may_cut_the_row_elsewhere(mark):
    row = f"Ana{mark}=cmd|' /C calc'!A0{mark}+1"
    assert harmless(row) == f"Ana{mark}'=cmd|' /C calc'!A0{mark}'+1"


def test_harmless_cells_stay():
    for row in ("Ana", "a-b;c=d,e+f", "a; =b"):
        assert harmless(row) == row


def test_a_number_made_harmless_is_still_read():
    assert isinstance(normalise(harmless("+12025550123"), None), Phone)
