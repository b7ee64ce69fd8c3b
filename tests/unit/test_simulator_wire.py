"""Meta's JSON in both directions, and a ledger that tells what happened."""

import base64
import json
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.simulator import replies
from services.simulator.ledger import Acceptance, Ledger
from services.simulator.request import InvalidSendError, read
from services.simulator.updates import Update, webhook
from services.simulator.wheel import TICK_S, Wheel
from shared.whatsapp.errors import ERRORS
from shared.whatsapp.messages import read_reply, template_body
from shared.whatsapp.webhooks import StatusUpdate, Webhook

TOKEN = f"hr1:{'0' * 32}:7:1"
TEMPLATE = {"name": "offer", "language": {"code": "pt_BR"}}
GOOD = {
    "messaging_product": "whatsapp",
    "to": "+12025550142",
    "type": "template",
    "template": TEMPLATE,
}


def acceptance(**changes: Any) -> Acceptance:
    fields: dict[str, Any] = {
        "serial": 1,
        "number": "84",
        "to": "+12025550142",
        "token": TOKEN,
        "at": 1.5,
        "category": "marketing",
        "answer": "200",
        "withheld": False,
        "failure": None,
    }
    return Acceptance(**{**fields, **changes})


def update(status: str, happened: int = 1, **changes: Any) -> Update:
    message = acceptance(**changes)
    return Update(message, message.wamid, status, happened)


def statuses(*updates: Update, bare_failures: bool = False) -> list[dict[str, Any]]:
    body = webhook("73", "84", updates, bare_failures=bare_failures)
    value = json.loads(body)["entry"][0]["changes"][0]["value"]
    return cast("list[dict[str, Any]]", value["statuses"])


def test_the_projects_own_send_is_read() -> None:
    message = read("84", "messages", template_body("12025550142", TEMPLATE, TOKEN))
    assert (message.number, message.to, message.token) == ("84", "+12025550142", TOKEN)
    assert message.template
    assert message.category == "marketing"


def test_fate_is_that_of_the_message_and_not_of_the_installation() -> None:
    here, there = (
        read("84", "messages", template_body("12025550142", TEMPLATE, f"hr1:{where * 32}:7:1"))
        for where in "ab"
    )
    assert here.fate == there.fate == "7:1"
    assert read("84", "messages", json.dumps(GOOD).encode()).fate == "+12025550142"


def test_the_other_endpoint_bills_otherwise() -> None:
    message = read("84", "marketing_messages", json.dumps(GOOD).encode())
    assert message.category == "marketing_lite"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"messaging_product": "sms"}, 100),
        ({"to": None}, 100),
        ({"to": 12025550142}, 100),
        ({"to": ""}, 131009),
        ({"to": "Dora"}, 131009),
        ({"to": None, "recipient": "not-an-id"}, 131009),
        ({"template": None}, 131008),
        ({"template": {"name": "offer"}}, 100),
        ({"biz_opaque_callback_data": "x" * 513}, 100),
    ],
)
def test_a_wrong_send_is_refused(change: dict[str, Any], code: int) -> None:
    with pytest.raises(InvalidSendError) as refused:
        read("84", "messages", json.dumps({**GOOD, **change}).encode())
    assert refused.value.code == code


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'"x"', b'{"to": "\xff"}', b'{"to":"\\ud800']
)
def test_a_broken_body_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidSendError):
        read("84", "messages", content)


def test_a_user_id_takes_the_place_of_a_phone() -> None:
    body = {**GOOD, "to": None, "recipient": "US.13490000000000000001"}
    message = read("84", "messages", json.dumps(body).encode())
    told = json.loads(replies.accepted(message.to, "wamid.X", template=True))
    assert told["contacts"] == [{"input": message.to, "user_id": message.to}]
    (status,) = statuses(update("sent", 1, to=message.to))
    assert status["recipient_user_id"] == message.to
    assert "recipient_id" not in status


def test_the_reply_is_metas() -> None:
    body = replies.accepted("+1 (202) 555-0142", "wamid.X", template=True)
    assert json.loads(body) == {
        "messaging_product": "whatsapp",
        "contacts": [{"input": "+1 (202) 555-0142", "wa_id": "12025550142"}],
        "messages": [{"id": "wamid.X", "message_status": "accepted"}],
    }
    assert b"message_status" not in replies.accepted("+12025550142", "wamid.X", template=False)


@pytest.mark.parametrize("code", ERRORS)
def test_every_error_of_the_table_can_be_answered(code: int) -> None:
    status, body = replies.refused(code)
    error = read_reply(body).error
    assert status == ERRORS[code].http_status
    assert error is not None
    assert (error.code, error.details) == (code, ERRORS[code].title)
    assert error.fbtrace_id
    assert json.loads(body)["error"]["message"].startswith(f"(#{code}) ")


def test_ids_are_unique_and_hold_the_person_as_metas_do() -> None:
    ids = {replies.wamid("+12025550142", serial) for serial in range(1_000)}
    assert len(ids) == 1_000
    for message_id in ids:
        assert message_id.startswith("wamid.HBgLMTIwMjU1NTAxNDI")
        assert b"12025550142" in base64.b64decode(message_id.removeprefix("wamid."), validate=True)


def test_a_status_is_metas() -> None:
    (status,) = statuses(update("delivered", 1796112003))
    assert status.pop("conversation") == {"id": f"{1:032x}", "origin": {"type": "marketing"}}
    assert status == {
        "id": acceptance().wamid,
        "status": "delivered",
        "timestamp": "1796112003",
        "recipient_id": "12025550142",
        "biz_opaque_callback_data": TOKEN,
        "pricing": {
            "billable": True,
            "pricing_model": "PMP",
            "type": "regular",
            "category": "marketing",
        },
    }


def test_read_costs_nothing() -> None:
    (status,) = statuses(update("read", 1))
    assert "pricing" not in status


def test_a_webhook_is_what_the_project_reads() -> None:
    updates = [update("sent", 5), update("failed", 6, failure=131026)]
    body = webhook("73", "84", updates, bare_failures=False)
    (entry,) = msgspec.json.decode(body, type=Webhook).entry
    value = msgspec.json.decode(entry.changes[0].value)
    assert value["metadata"]["phone_number_id"] == "84"
    statuses = msgspec.convert(value["statuses"], list[StatusUpdate])
    assert [status.status for status in statuses] == ["sent", "failed"]
    assert [error.code for error in statuses[1].errors] == [131026]
    assert {status.biz_opaque_callback_data for status in statuses} == {TOKEN}


def test_slashes_are_escaped_so_that_the_raw_bytes_matter() -> None:
    body = webhook("73", "84", [update("failed", 6, failure=1)], bare_failures=False)
    assert body.count(b"/") == body.count(rb"\/") > 0


def test_failures_may_lack_the_token_except_where_it_is_all_the_sender_has() -> None:
    clear = update("failed", 1, failure=131026)
    unclear = update("failed", 1, failure=131026, answer="stall")
    told = statuses(clear, unclear, bare_failures=True)
    assert ["biz_opaque_callback_data" in status for status in told] == [False, True]
    (sent,) = statuses(update("sent", 1), bare_failures=True)
    assert sent["biz_opaque_callback_data"] == TOKEN


def test_the_ledger_tells_what_was_acknowledged_and_reported() -> None:
    ledger = Ledger()
    plain, failed = acceptance(serial=1), acceptance(serial=2, failure=131026)
    for at, message in enumerate((plain, failed)):
        ledger.accept(message, at / 4)
    plain.acknowledge("delivered")
    plain.acknowledge("sent")
    plain.acknowledge("sent")
    failed.failed_reported = True
    rows = [json.loads(line) for line in b"".join(ledger.acceptance_lines()).splitlines()]
    assert [row["acknowledged"] for row in rows] == [["sent", "delivered"], []]
    assert [row["failed_reported"] for row in rows] == [None, 131026]
    assert rows[0].keys() == {
        *("wamid", "phone_number_id", "to", "token", "at"),
        *("answer", "withheld", "acknowledged", "failed_reported"),
    }
    assert ledger.stats()["most_accepted_in_one_second"] == {"84": 2}


def test_a_long_ledger_comes_whole_and_in_order() -> None:
    ledger = Ledger()
    for serial in range(1_234):
        ledger.accept(acceptance(serial=serial), 0.0)
    lines = b"".join(ledger.acceptance_lines()).splitlines()
    assert [json.loads(line)["wamid"] for line in lines] == [
        message.wamid for message in ledger.acceptances
    ]


def test_ids_of_two_ledgers_never_meet() -> None:
    assert Ledger().next_serial() != Ledger().next_serial()


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 50)), max_size=50))
def test_the_wheel_gives_back_everything_once_never_early_and_never_late(
    steps: list[tuple[int, int]],
) -> None:
    """Each step adds an item due after so many quarters of a tick, then turns so many on."""
    quarter = TICK_S / 4
    wheel: Wheel[int] = Wheel(0.0)
    now, waiting, given_back = 0, dict[int, int](), list[int]()
    for item, (delay, turn) in enumerate(steps):
        waiting[item] = now + delay
        wheel.add((now + delay) * quarter, item)
        now += turn
        for due in wheel.due(now * quarter):
            assert waiting.pop(due) <= now
            given_back.append(due)
        assert len(wheel) == len(waiting)
        assert all(due > now - 8 for due in waiting.values())
    given_back += wheel.due(10_000 * TICK_S)
    assert sorted(given_back) == list(range(len(steps)))
