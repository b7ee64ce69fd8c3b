"""What stands against a campaign, in one line."""

import pytest

from services.cli.findings import said

CAMPAIGN = "/v1/campaigns/01a23291-73e8-72a4-ba13-c021787c9a78"
ID = CAMPAIGN.rpartition("/")[2]


@pytest.mark.parametrize(
    ("cure", "command"),
    [
        ("POST /v1/unhalt", "headrace unhalt"),
        ("POST /v1/phone-numbers/1065/resume", "headrace number resume 1065"),
        (f"POST {CAMPAIGN}/resume", f"headrace campaign resume {ID}"),
        (f"POST {CAMPAIGN}/start", f"headrace campaign start {ID}"),
        (f"POST {CAMPAIGN}/start with another at", f"headrace campaign start {ID} --at TIME"),
        (
            f"POST {CAMPAIGN}/recipients, or POST {CAMPAIGN}/close",
            f"headrace campaign upload {ID} FILE, or headrace campaign close {ID}",
        ),
        (f"GET {CAMPAIGN}/rejects says why", f"headrace campaign rejects {ID} says why"),
        (f"GET {CAMPAIGN} says how far", f"headrace campaign report {ID} says how far"),
        (f"GET {CAMPAIGN}/events", f"GET {CAMPAIGN}/events"),
        (f"PATCH {CAMPAIGN} with a later expires_at",) * 2,
        ("start a sender",) * 2,
    ],
)
def test_a_cure_is_a_command_where_there_is_one(cure: str, command: str) -> None:
    assert said({"reason": "it", "detail": None, "cure": cure}) == f"it (cure: {command})"


def test_what_is_not_known_is_not_said() -> None:
    assert said({"reason": "it"}) == "it"
    assert said({"reason": "it", "detail": "so", "cure": None, "ends_at": None}) == "it: so"
