"""The token that Meta echoes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.tokens import Token

INSTALLATION = "0123456789abcdef0123456789abcdef"
IDS = st.integers(1, 10**18 - 1)
ATTEMPTS = st.integers(1, 10**9 - 1)


def test_the_text_of_a_token() -> None:
    assert Token(INSTALLATION, 42, 3).encode() == f"hr1:{INSTALLATION}:42:3"


@given(st.from_regex(r"[0-9a-f]{32}", fullmatch=True), IDS, ATTEMPTS)
def test_a_token_survives_the_way_there_and_back(
    installation: str, message_id: int, attempt: int
) -> None:
    token = Token(installation, message_id, attempt)

    assert Token.parse(token.encode()) == token
    assert len(token.encode()) <= 512


@given(st.text())
def test_any_other_text_is_nobodys_token(text: str) -> None:
    assert Token.parse(text) is None


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "hr1",
        f"hr2:{INSTALLATION}:1:1",
        f"hr1:{INSTALLATION[:-1]}:1:1",
        f"hr1:{INSTALLATION.upper()}:1:1",
        f"hr1:{INSTALLATION}:0:1",
        f"hr1:{INSTALLATION}:1:0",
        f"hr1:{INSTALLATION}:01:1",
        f"hr1:{INSTALLATION}:-1:1",
        f"hr1:{INSTALLATION}:1:1:1",
        f"hr1:{INSTALLATION}:1:1\n",
        f" hr1:{INSTALLATION}:1:1",
        f"hr1:{INSTALLATION}:٣:1",
        # Beyond bigint and int: a database error, if it got through.
        f"hr1:{INSTALLATION}:{10**18}:1",
        f"hr1:{INSTALLATION}:1:{10**9}",
    ],
)
def test_what_only_looks_like_one(text: str | None) -> None:
    assert Token.parse(text) is None
