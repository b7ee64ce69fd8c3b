"""Headrace's REST API as the command line uses it; every refusal is one line."""

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self

import httpx

# An upload of millions is answered when the last row is in the table.
UPLOAD_SECONDS = 3600.0
CHUNK = 1 << 18


class RestError(RuntimeError):
    """The API could not be reached, or refused; the text says what to do."""


class NotFoundError(RestError):
    """The API knows no such thing."""


class Rest:
    """A client of one sender. Paths are those of the API."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, key: str) -> AsyncGenerator[Self]:
        async with _client(url, key) as client:
            yield cls(client)

    async def get(self, path: str) -> Any:
        return (await self._call("GET", path)).json()

    async def text(self, path: str) -> str:
        return (await self._call("GET", path)).text

    async def put(self, path: str, body: Mapping[str, Any]) -> Any:
        return (await self._call("PUT", path, json=body)).json()

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return (await self._call("POST", path, json=body)).json()

    async def upload(self, campaign: str, file: Path) -> Any:
        """Stream a CSV file into a campaign."""
        answer = await self._call(
            "POST",
            f"/v1/campaigns/{campaign}/recipients",
            content=_chunks(file),
            headers={"Content-Type": "text/csv"},
            timeout=UPLOAD_SECONDS,
        )
        return answer.json()

    async def download(self, path: str, write: Callable[[bytes], object]) -> None:
        """Pass a long answer on as it comes; one that is cut short is an error."""
        with self._in_one_line(path):
            async with self._client.stream("GET", path) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise _refused("GET", path, answer)
                async for chunk in answer.aiter_bytes():
                    write(chunk)

    async def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        with self._in_one_line(path):
            answer = await self._client.request(method, path, **options)
        if answer.is_success:
            return answer
        raise _refused(method, path, answer)

    @contextmanager
    def _in_one_line(self, path: str) -> Generator[None]:
        try:
            yield
        except httpx.InvalidURL:
            raise RestError(f"{path!r} is no path of the API") from None
        except httpx.TransportError as error:
            message = f"{self._client.base_url} does not answer ({type(error).__name__})"
            raise RestError(message) from None


def _refused(method: str, path: str, answer: httpx.Response) -> RestError:
    refused = NotFoundError if answer.status_code == httpx.codes.NOT_FOUND else RestError
    return refused(f"{method} {path}: {_refusal(answer)}")


def _client(url: str, key: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {key}"}
    try:
        # A proxy of the user's shell has no business between us and our own service.
        return httpx.AsyncClient(base_url=url, headers=headers, timeout=30, trust_env=False)
    except httpx.InvalidURL:
        raise RestError("HEADRACE_URL is no address of a server") from None
    except UnicodeError:
        raise RestError("HEADRACE_KEY holds a character that no key has") from None


async def _chunks(file: Path) -> AsyncGenerator[bytes]:
    with file.open("rb") as source:
        while chunk := source.read(CHUNK):
            yield chunk


def _refusal(answer: httpx.Response) -> str:
    """What a problem+json says, in one line."""
    try:
        problem = answer.json()
        errors = "; ".join(
            ": ".join(str(value) for value in error.values()) for error in problem["errors"]
        )
        return f"{answer.status_code} {problem['detail']}" + (f" ({errors})" if errors else "")
    except (ValueError, LookupError, TypeError, AttributeError):
        return f"{answer.status_code} {answer.reason_phrase}"
