"""Webhook bodies, each a file named by its situation, and what is read from them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from services.ingest.parse import Parsed, parse, webhook_of
from shared.domain.status import Status
from shared.domain.tokens import Token

PAYLOADS = Path(__file__).parents[1] / "payloads"
INSTALLATION = "ab" * 16
NUMBER = "840000000000002"
RECEIVED = datetime.fromtimestamp(1796112500, UTC)
META = datetime.fromtimestamp(1796112001, UTC)


def read(name: str) -> Parsed:
    return parse((PAYLOADS / f"{name}.json").read_bytes(), RECEIVED)


def brief(parsed: Parsed) -> list[tuple]:
    return [
        (event.wamid, event.status.value, event.token and event.token.message_id, event.code)
        for event in parsed.events
    ]


EXPECTED = {
    "sent_with_contacts_and_pricing": [("wamid.A", "sent", 42, None)],
    "sent_with_conversation_of_v23": [("wamid.A", "sent", None, None)],
    "delivered_and_read_in_two_changes": [
        ("wamid.A", "delivered", 42, None),
        ("wamid.B", "read", 43, None),
    ],
    "read_before_sent": [("wamid.A", "read", 42, None), ("wamid.A", "sent", 42, None)],
    "failed_without_token": [("wamid.F", "failed", None, 131049)],
    "failed_with_contacts_of_wa_id_only": [("wamid.F", "failed", 42, 131026)],
    "failed_with_code_as_text": [("wamid.F", "failed", 42, 131026)],
    "failed_with_code_beyond_integers": [
        ("wamid.F", "failed", 42, None),
        ("wamid.G", "failed", 43, None),
    ],
    "failed_without_errors": [("wamid.F", "failed", 42, None)],
    "failed_with_errors_of_wrong_types": [
        ("wamid.F", "failed", 42, None),
        ("wamid.G", "failed", 43, None),
    ],
    "failed_with_nul_in_details": [("wamid.F", "failed", 42, 131026)],
    "played_and_group_status": [
        ("wamid.P", "read", 42, None),
        ("wamid.G", "delivered", None, None),
    ],
    "unknown_statuses": [("wamid.A", "sent", 42, None)],
    "value_error": [],
    "inbound_text_and_button": [],
    "template_status_update": [],
    "timestamps_of_all_kinds": [(f"wamid.{n}", "sent", n, None) for n in range(1, 9)],
    "one_bad_among_good": [("wamid.1", "sent", 1, None), ("wamid.3", "read", 3, None)],
    "tokens_of_others": [
        ("wamid.1", "sent", None, None),
        ("wamid.2", "sent", None, None),
        ("wamid.3", "delivered", None, None),
    ],
    "metadata_and_messages_of_wrong_types": [("wamid.A", "sent", 42, None)],
    "statuses_not_a_list": [],
    "no_entry": [],
    "body_is_a_list": [],
    "half_an_emoji": [("wamid.A?", "sent", 42, None), ("wamid.F", "failed", 43, 131026)],
}
POISON = {"one_bad_among_good": 5, "statuses_not_a_list": 1, "body_is_a_list": 1}
OTHERS = {
    "unknown_statuses": {"unknown_status": 2},
    "value_error": {"value_error": 1},
    "inbound_text_and_button": {"inbound": 2},
    "template_status_update": {"other_field": 1},
    "metadata_and_messages_of_wrong_types": {"other_field": 1},
}


def test_every_payload_is_expected():
    assert {path.stem for path in PAYLOADS.glob("*.json")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_payload(name):
    parsed = read(name)
    assert brief(parsed) == EXPECTED[name]
    assert len(parsed.poison) == POISON.get(name, 0)
    assert +parsed.others == OTHERS.get(name, {})


def test_whole_event():
    event = read("failed_with_contacts_of_wa_id_only").events[0]
    assert event.token == Token(INSTALLATION, 42, 1)
    assert event.phone_number_id == NUMBER
    assert event.at == datetime.fromtimestamp(1796112102, UTC)
    assert event.received_at == RECEIVED
    assert event.details == "Undeliverable."


def test_numbers_are_heard_of_also_by_inbound_messages():
    assert read("inbound_text_and_button").numbers == {NUMBER}
    assert read("metadata_and_messages_of_wrong_types").numbers == set()


def test_times_without_sense_are_ours():
    times = {event.wamid: event.at for event in read("timestamps_of_all_kinds").events}
    assert times.pop("wamid.1") == META
    assert set(times.values()) == {RECEIVED}


@pytest.mark.parametrize(("ahead", "kept"), [(86400, True), (86401, False)])
def test_a_day_ahead_is_the_limit(ahead, kept):
    at = RECEIVED + timedelta(seconds=ahead)
    raw = b'{"id":"w","status":"sent","timestamp":"%d"}' % at.timestamp()
    event = parse(webhook_of(raw, NUMBER), RECEIVED).events[0]
    assert event.at == (at if kept else RECEIVED)


def test_text_is_fit_for_postgres():
    assert read("failed_with_nul_in_details").events[0].details == "ab"
    assert read("half_an_emoji").events[1].details == "x ? y"


def test_long_details_are_cut():
    raw = b'{"id":"w","status":"failed","errors":[{"code":1,"message":"%s"}]}' % (b"x" * 900)
    assert parse(webhook_of(raw, None), RECEIVED).events[0].details == "x" * 500


def test_what_is_set_aside_can_be_parsed_again():
    event = read("failed_without_token").events[0]
    again = parse(webhook_of(event.raw, event.phone_number_id), RECEIVED).events
    assert again == [event]


def test_poison_keeps_its_own_piece_only():
    pieces = [piece.body for piece in read("one_bad_among_good").poison]
    assert any(b'"id":17' in piece.replace(b" ", b"") for piece in pieces)
    assert not any(b"wamid.1" in piece for piece in pieces)


@pytest.mark.parametrize(
    "body", [b"", b"no json", b"[" * 100_000, b'{"entry":' + b"9" * 5000 + b"}", b"\xff\xfe"]
)
def test_a_body_that_is_no_json_is_poison_as_a_whole(body):
    parsed = parse(body, RECEIVED)
    assert [piece.body for piece in parsed.poison] == [body]
    assert not parsed.events


def test_broken_utf8_in_a_name_spoils_nothing():
    value = b'{"contacts":[{"n":"\xff"}],"statuses":[{"id":"w","status":"read"}]}'
    body = b'{"entry":[{"changes":[{"field":"messages","value":%s}]}]}' % value
    assert [event.status for event in parse(body, RECEIVED).events] == [Status.READ]


def test_a_thousand_with_one_bad():
    good = [b'{"id":"w%d","status":"sent"}' % number for number in range(999)]
    value = b'{"statuses":[%s]}' % b",".join([*good[:500], b'{"id":null}', *good[500:]])
    parsed = parse(b'{"entry":[{"changes":[{"field":"messages","value":%s}]}]}' % value, RECEIVED)
    assert len(parsed.events) == 999
    assert len(parsed.poison) == 1
