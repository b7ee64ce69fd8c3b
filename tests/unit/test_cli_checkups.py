"""What the doctor makes of what it is told."""

from datetime import UTC, datetime, timedelta

import pytest

from services.cli import checkups

WELL = {
    "server_version_num": "180000",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "schema": "0003",
}


def sick(findings: list[checkups.Finding]) -> list[str]:
    return [one.part for one in findings if one.cure]


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, []),
        ({"synchronous_commit": "remote_apply"}, []),
        ({"server_version_num": "140011"}, ["postgres"]),
        ({"fsync": "off"}, ["postgres durability"]),
        ({"full_page_writes": "off"}, ["postgres durability"]),
        ({"synchronous_commit": "off"}, ["postgres durability"]),
        ({"schema": "0002"}, ["migrations"]),
        ({"schema": None}, ["migrations"]),
    ],
)
def test_a_database(changes: dict[str, str | None], parts: list[str]) -> None:
    assert sick(checkups.database_findings(WELL | changes, "0003")) == parts


@pytest.mark.parametrize(
    ("version", "policy", "parts"),
    [
        ("7.2.4", "noeviction", []),
        ("10.0.1", "noeviction", []),
        ("6.2.1", "noeviction", ["redis"]),
        ("7.0.0", "allkeys-lru", ["redis eviction"]),
    ],
)
def test_a_redis(version: str, policy: str, parts: list[str]) -> None:
    told = {"redis_version": version, "maxmemory_policy": policy}
    assert sick(checkups.redis_findings(told)) == parts


@pytest.mark.parametrize(
    ("theirs", "is_sick"), [(100, False), (99, False), (112, False), (97, True), (113.5, True)]
)
def test_a_slow_answer_is_no_wrong_clock(theirs: float, is_sick: bool) -> None:  # noqa: FBT001 -- a case
    finding = checkups.clock("redis", theirs, asked=100, answered=111)
    assert bool(finding.cure) is is_sick


def test_files_must_do_for_the_messages_on_the_wire() -> None:
    assert checkups.files(1 << 40).cure
    assert not checkups.files(-checkups.OTHER_FILES).cure


NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


def ago(minutes: int | None) -> datetime | None:
    return None if minutes is None else NOW - timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("heard", "accepted", "is_sick"),
    [
        (None, None, False),
        (5, None, False),
        (None, 9, False),
        (None, 11, True),
        (60, 11, True),
        (11, 11, False),
        (10, 11, False),
        (60, 9, False),
    ],
)
def test_what_was_accepted_is_followed_by_webhooks(
    heard: int | None,
    accepted: int | None,
    is_sick: bool,  # noqa: FBT001 -- a case
) -> None:
    number = checkups.Number("1065", "1", 80, None, ago(heard), ago(accepted))
    finding = checkups.webhook_finding(number, NOW)
    assert bool(finding.cure) is is_sick
    assert ("none has come" in finding.found) is (heard is None)
    assert ("nothing was sent" in finding.found) is (accepted is None)


@pytest.mark.parametrize(
    ("url", "level", "shown"),
    [
        ("https://graph.facebook.com", "well", "graph.facebook.com, v25.0"),
        ("https://graph.facebook.com/", "well", "graph.facebook.com, v25.0"),
        ("http://simulator:8002", "warn", "HEADRACE_GRAPH_URL is simulator:8002, not Meta's own"),
        ("http://graph.facebook.com", "warn", "HEADRACE_GRAPH_URL is graph.facebook.com:http"),
        ("http://u:a-password@here:1", "warn", "HEADRACE_GRAPH_URL is here:1"),
    ],
)
def test_whom_a_sender_asks(url: str, level: str, shown: str) -> None:
    finding = checkups.meta(url, "v25.0")
    assert finding.level == level
    assert finding.found.startswith(shown)


def test_who_may_be_sent_to_is_told_without_a_number() -> None:
    assert "everyone" in checkups.recipients(None).found
    told = checkups.recipients(("447400123456", "49")).found
    assert "only those of HEADRACE_ALLOWED_RECIPIENTS (entries: 2)" in told
    assert "7400" not in told
