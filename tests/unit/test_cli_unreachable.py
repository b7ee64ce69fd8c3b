"""Why somebody was not reached, in words."""

import socket
import ssl

import httpx
import pytest

from services.cli.unreachable import why


def because(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (httpx.ConnectError("x"), "nobody listens there"),
        (ConnectionRefusedError(), "nobody listens there"),
        (FileNotFoundError("/run/no.socket"), "nobody listens there"),
        (because(httpx.ConnectError("x"), socket.gaierror()), "nobody knows its name"),
        (
            because(httpx.ConnectError("x"), ssl.SSLCertVerificationError()),
            "its certificate is not valid",
        ),
        (because(httpx.ConnectError("x"), ssl.SSLError()), "it does not speak TLS"),
        (httpx.ConnectTimeout("x"), "it took too long"),
        (TimeoutError(), "it took too long"),
        (httpx.ReadError("x"), "the connection broke"),
        (ConnectionResetError(), "the connection broke"),
        (httpx.RemoteProtocolError("x"), "it speaks no HTTP, or broke off"),
        (ValueError("a password"), "ValueError"),
    ],
)
def test_in_words(error: Exception, words: str) -> None:
    assert why(error) == words


def test_what_a_client_really_raises() -> None:
    with httpx.Client(trust_env=False) as client, pytest.raises(httpx.ConnectError) as raised:
        client.get("http://127.0.0.1:1")
    assert why(raised.value) == "nobody listens there"
