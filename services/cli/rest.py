"""Headrace's REST API as the command line uses it; every refusal is one line."""

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from services.cli.unreachable import why

# An upload of millions is answered when the last row is in the table.
UPLOAD_SECONDS = 3600.0
CHUNK = 1 << 18
PAGE = 1000
CSV = {"Content-Type": "text/csv"}


class RestError(RuntimeError):
    """The API could not be reached, or refused; the text says what to do.

    `problems` are what stands against a start: reason, detail and cure of each.
    """

    def __init__(self, message: str, problems: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class ConflictError(RestError):
    """The state of the thing does not allow it."""


class AwayError(RestError):
    """Nobody answers, or not now."""


REFUSALS = {409: ConflictError, 502: AwayError, 503: AwayError, 504: AwayError}


@dataclass(frozen=True, slots=True)
class Part:
    """The beginning of a list, and whether more may follow."""

    rows: list[Any]
    more: bool


class Rest:
    """A client of one sender. Paths are those of the API."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, key: str) -> AsyncGenerator[Self]:
        async with _client(url, key) as client:
            yield cls(client)

    async def get(self, path: str, **wanted: Any) -> Any:
        params = {name: value for name, value in wanted.items() if value is not None}
        return (await self._call("GET", path, params=params or None)).json()

    async def text(self, path: str) -> str:
        return (await self._call("GET", path)).text

    async def put(self, path: str, body: Mapping[str, Any]) -> Any:
        return (await self._call("PUT", path, json=body)).json()

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return (await self._call("POST", path, json=body)).json()

    async def first(self, path: str, most: int, **wanted: Any) -> Part:
        """So many of a list at most, page by page; a page may be short although more follow."""
        found: list[Any] = []
        following: str | None = None
        while len(found) < most:
            size = min(most - len(found), PAGE)
            told = await self.get(path, **wanted, limit=size, cursor=following)
            found += told["data"]
            following = told["next_cursor"]
            if following is None:
                break
        return Part(found, following is not None)

    async def upload(
        self,
        campaign: str,
        file: Path,
        headers: Mapping[str, str] = CSV,
        sent: Callable[[int], object] = lambda _: None,
    ) -> Any:
        """Stream a file into a campaign; `sent` is told the size of each part that went out."""
        answer = await self._call(
            "POST",
            f"/v1/campaigns/{campaign}/recipients",
            content=_chunks(file, sent),
            headers=headers,
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
            message = f"{self._client.base_url} does not answer ({why(error)})"
            raise AwayError(message) from None


def _refused(method: str, path: str, answer: httpx.Response) -> RestError:
    kind = REFUSALS.get(answer.status_code, RestError)
    nothing = f"{method} {path}: {answer.status_code} {answer.reason_phrase}"
    return kind(_refusal(answer) or nothing, _problems(answer))


def _client(url: str, key: str) -> httpx.AsyncClient:
    if not url.startswith(("http://", "https://")):
        raise RestError(
            "HEADRACE_URL is no address of a server: it begins with http:// or https://"
        )
    if not key.isascii() or not key.isprintable():
        raise RestError("HEADRACE_KEY holds a character that no key has")
    headers = {"Authorization": f"Bearer {key}"}
    try:
        # A proxy of the user's shell has no business between us and our own service.
        return httpx.AsyncClient(base_url=url, headers=headers, timeout=30, trust_env=False)
    except httpx.InvalidURL:
        raise RestError("HEADRACE_URL is no address of a server") from None


async def _chunks(file: Path, sent: Callable[[int], object]) -> AsyncGenerator[bytes]:
    with file.open("rb") as source:
        while chunk := source.read(CHUNK):
            yield chunk
            sent(len(chunk))


def _problems(answer: httpx.Response) -> Sequence[Mapping[str, Any]]:
    try:
        found: Sequence[Mapping[str, Any]] = answer.json()["problems"]
    except (ValueError, LookupError, TypeError):
        return ()
    return found


def _refusal(answer: httpx.Response) -> str | None:
    """What a problem+json says, in one line: whoever gave a command asked for no path."""
    try:
        problem = answer.json()
        detail = str(problem["detail"])
        told = (
            ": ".join(str(value) for value in error.values())
            for error in problem["errors"]
            if str(error.get("message")) not in detail
        )
        errors = "; ".join(told)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return f"{detail} ({errors})" if errors else detail
