"""The send: the only place with a Cloud API URL."""

import asyncio
import math
from importlib.metadata import version as installed_version

import httpx

from services.sender.pipeline.reply import Lost, NotSent, Reason, Replied, Reply
from services.sender.pipeline.transport import CONNECT_TIMEOUT, READ_TIMEOUT, Exchange

_AGENT = b"headrace/" + installed_version("headrace").encode()
# Everything else may have left. The words are for transports that do not say one of their own.
_NOT_SENT: dict[type[httpx.HTTPError], Reason] = {
    httpx.ConnectError: Reason.CONNECT,
    httpx.ConnectTimeout: Reason.CONNECT_TIMEOUT,
    httpx.PoolTimeout: Reason.POOL_TIMEOUT,
}
_LOST: dict[type[httpx.HTTPError], Reason] = {
    httpx.ReadTimeout: Reason.READ_TIMEOUT,
    httpx.WriteTimeout: Reason.READ_TIMEOUT,
    httpx.ReadError: Reason.RESET,
    httpx.WriteError: Reason.RESET,
    httpx.RemoteProtocolError: Reason.GARBLED,
}


class Outlet:
    """Posts messages through any httpx transport, called directly."""

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport,
        graph_url: str,
        version: str,
        *,
        connect_timeout: float = CONNECT_TIMEOUT,
        read_timeout: float = READ_TIMEOUT,
    ) -> None:
        self._transport = transport
        self._base = f"{graph_url.rstrip('/')}/{version}"
        self._urls: dict[tuple[str, str], httpx.URL] = {}
        self._timeouts = {
            "connect": connect_timeout,
            "pool": connect_timeout,
            "read": read_timeout,
            "write": read_timeout,
        }

    @property
    def longest_s(self) -> float:
        """Seconds after which even the slowest send has ended."""
        return sum(self._timeouts[name] for name in ("pool", "connect", "read"))

    async def post(
        self,
        phone_number_id: str,
        endpoint: str,
        body: bytes,
        access_token: str,
        latest: float = math.inf,
    ) -> Reply:
        """Send one message body to `messages` or `marketing_messages`, not after `latest`.

        A cancellation before the request is handed over is raised: nothing left. After that it ends
        here as `Lost`, so that nobody forgets that the message may be on its way; the task has
        then to record that and end by itself.
        """
        exchange = Exchange(latest=latest)
        try:
            url = self._url(phone_number_id, endpoint)
            request = self._request(url, body, access_token, exchange)
        except (httpx.InvalidURL, UnicodeError):
            return NotSent(Reason.BAD_REQUEST)
        try:
            return await self._exchange(request)
        except asyncio.CancelledError:
            if not exchange.handed_over:
                raise
            return Lost(Reason.CANCELLED)
        except httpx.HTTPError as error:
            return _without_reply(error)

    def _request(
        self, url: httpx.URL, body: bytes, access_token: str, exchange: Exchange
    ) -> httpx.Request:
        headers = [
            (b"Host", url.netloc),
            (b"Authorization", b"Bearer " + access_token.encode()),
            (b"User-Agent", _AGENT),
            (b"Content-Type", b"application/json"),
            (b"Content-Length", b"%d" % len(body)),
        ]
        return httpx.Request(
            "POST",
            url,
            headers=headers,
            # Not `content`: httpx would look for the headers it should add, at five times the cost.
            stream=httpx.ByteStream(body),
            extensions={"timeout": self._timeouts, "exchange": exchange},
        )

    def _url(self, phone_number_id: str, endpoint: str) -> httpx.URL:
        """Parsed once per number and endpoint: parsing costs more than the rest of the request."""
        key = (phone_number_id, endpoint)
        if key not in self._urls:
            self._urls[key] = httpx.URL(f"{self._base}/{phone_number_id}/{endpoint}")
        return self._urls[key]

    async def _exchange(self, request: httpx.Request) -> Replied:
        response = await self._transport.handle_async_request(request)
        try:
            body = await response.aread()
        finally:
            await response.aclose()
        return Replied(response.status_code, body, response.headers)


def _without_reply(error: httpx.HTTPError) -> NotSent | Lost:
    otherwise = _NOT_SENT.get(type(error))
    if otherwise is not None:
        return NotSent(_reason(error, otherwise))
    return Lost(_reason(error, _LOST.get(type(error), Reason.UNEXPECTED)))


def _reason(error: httpx.HTTPError, otherwise: Reason) -> Reason:
    try:
        return Reason(str(error))
    except ValueError:
        return otherwise
