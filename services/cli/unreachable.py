"""Why somebody was not reached, in words: the names of exceptions say little to most."""

import socket
import ssl
from collections.abc import Iterator

import httpx


def why(error: BaseException) -> str:
    """Never the text of the error: it may hold an address with a password."""
    causes = list(_causes(error))
    for kinds, words in _WORDS:
        if any(isinstance(cause, kinds) for cause in causes):
            return words
    return type(error).__name__


_WORDS = (
    ((socket.gaierror,), "nobody knows its name"),
    ((ssl.SSLCertVerificationError,), "its certificate is not valid"),
    ((ssl.SSLError,), "it does not speak TLS"),
    ((TimeoutError, httpx.TimeoutException), "it took too long"),
    ((ConnectionRefusedError, FileNotFoundError, httpx.ConnectError), "nobody listens there"),
    ((ConnectionError, httpx.NetworkError), "the connection broke"),
    ((httpx.RemoteProtocolError,), "it speaks no HTTP, or broke off"),
)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
