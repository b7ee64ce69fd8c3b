"""What Meta tells of a token, its account and its numbers, each with the cure of what is odd."""

import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import httpx
from typing_extensions import override

from services.cli.checkups import SECONDS, Finding, Number

Told = Mapping[str, Any]

SCOPES = ("whatsapp_business_messaging", "whatsapp_business_management")
FIELDS = (
    *("display_phone_number", "verified_name", "quality_rating", "platform_type"),
    *("throughput", "code_verification_status", "status"),
)
# Time to make a new token and to bring it to every process.
EXPIRES_SOON_S = 14 * 86_400
STANDARD_RATE = 80
EXPIRED = 190


@dataclass(frozen=True, slots=True)
class Refusal:
    """What Meta answered in place of what was asked, without its text."""

    status: int
    code: int | None

    @override
    def __str__(self) -> str:
        return f"{self.status}" if self.code is None else f"{self.status}, code {self.code}"

    @property
    def blames_token(self) -> bool:
        return self.code == EXPIRED or self.status == httpx.codes.UNAUTHORIZED


@dataclass(frozen=True, slots=True)
class Graph:
    """The Graph API for one token. `variable` is what holds it, since it is shown itself never."""

    client: httpx.AsyncClient
    base: str
    variable: str

    async def get(self, path: str, **parameters: str) -> Told | Refusal:
        answer = await self.client.get(f"{self.base}/{path}", params=parameters)
        try:
            body = answer.json()
        except ValueError:
            return Refusal(answer.status_code, None)
        if answer.is_success and isinstance(body, dict):
            return body
        return Refusal(answer.status_code, _code(body))

    def curl(self, path: str, body: str | None = None) -> str:
        """A POST as a line for a shell in which the token's variable is set."""
        content = f" -H 'Content-Type: application/json' -d '{body}'" if body else ""
        authorization = f'-H "Authorization: Bearer ${self.variable}"'
        return f"curl -X POST {authorization}{content} {self.base}/{path}"


@asynccontextmanager
async def open_graph(base: str, token: str, variable: str) -> AsyncGenerator[Graph]:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(timeout=SECONDS, headers=headers) as client:
        yield Graph(client, base, variable)


async def look(graph: Graph, token: str, numbers: Sequence[Number]) -> list[Finding]:
    """The token, then what it opens."""
    told = await graph.get("debug_token", input_token=token)
    found = [token_finding(graph.variable, told, time.time())]
    if _opens_nothing(told):
        return found + unseen(numbers)
    for waba_id, of_account in _by_account(numbers).items():
        apps = await graph.get(f"{waba_id}/subscribed_apps")
        finding = account_finding(graph, waba_id, apps, _app_of(told))
        found.append(_milder(finding, put_aside=all(one.put_aside for one in of_account)))
    for number in numbers:
        node = await graph.get(number.phone_number_id, fields=",".join(FIELDS))
        finding = number_finding(graph, number, node)
        found.append(_milder(finding, put_aside=number.put_aside))
    return found


def unseen(numbers: Sequence[Number]) -> list[Finding]:
    """A line for each number also where nobody could ask for it."""
    parts = [
        *(f"account {waba_id}" for waba_id in _by_account(numbers)),
        *(f"number {number.phone_number_id}" for number in numbers),
    ]
    return [
        Finding(part, "not looked at", "first that of the line above", warning=True)
        for part in parts
    ]


def _by_account(numbers: Sequence[Number]) -> dict[str, list[Number]]:
    found: dict[str, list[Number]] = {}
    for number in numbers:
        found.setdefault(number.waba_id, []).append(number)
    return found


def _milder(finding: Finding, *, put_aside: bool) -> Finding:
    """Nothing leaves from a number that an operator paused, so nothing of it is in the way."""
    if not put_aside:
        return finding
    shown = f"{finding.found} (paused by an operator)"
    return replace(finding, found=shown, warning=finding.cure is not None)


def token_finding(variable: str, told: Told | Refusal, now: float) -> Finding:
    """Whether it is valid, for how long, and for what."""
    part = f"token {variable}"
    new = f"make a new token of a system user with {' and '.join(SCOPES)}, and set {variable}"
    if isinstance(told, Refusal):
        if told.blames_token:
            return Finding(part, f"Meta does not take it ({told})", new)
        return Finding(part, f"Meta does not say how long it is valid ({told})")
    data = _data(told)
    ends = int(data.get("expires_at") or 0)
    if _opens_nothing(told):
        when = f": it expired on {_day(ends)}" if 0 < ends < now else ""
        return Finding(part, f"not valid any more{when}", new)
    missing = [scope for scope in SCOPES if scope not in (data.get("scopes") or ())]
    if missing:
        return Finding(part, f"lacks {' and '.join(missing)}", new)
    if not ends:
        return Finding(part, "valid, does not expire")
    soon = ends - now < EXPIRES_SOON_S
    cure = f"before that, {new}" if soon else None
    return Finding(part, f"valid until {_day(ends)}", cure, warning=soon)


def account_finding(graph: Graph, waba_id: str, told: Told | Refusal, app: str | None) -> Finding:
    """Whether the account's webhooks go to the token's app; `app` is None when nobody knows it."""
    part = f"account {waba_id}"
    if isinstance(told, Refusal):
        cure = (
            "check the waba_id of its numbers, and that the token's system user has it as an asset"
        )
        return Finding(part, f"Meta does not show its webhooks ({told})", cure)
    apps = _apps(told)
    subscribe = f"subscribe the app: {graph.curl(f'{waba_id}/subscribed_apps')}"
    if not apps:
        return Finding(part, "no app is subscribed, so no webhook comes", subscribe)
    names = ", ".join(sorted(apps.values()))
    if app is not None and app not in apps:
        return Finding(part, f"webhooks go to {names}, not to the token's app", subscribe)
    return Finding(part, f"webhooks go to {names}")


def number_finding(graph: Graph, number: Number, told: Told | Refusal) -> Finding:
    """Whether it can send; the worst of what is odd."""
    part = f"number {number.phone_number_id}"
    if isinstance(told, Refusal):
        cure = "check its id, and that the token's system user has its account as an asset"
        return Finding(part, f"Meta does not show it ({told})", cure)
    shown = _shown(told)
    platform, status, quality = (
        told.get(name) for name in ("platform_type", "status", "quality_rating")
    )
    if platform not in (None, "CLOUD_API"):
        return Finding(part, f"{shown}, not on the Cloud API ({platform})", _register(graph, told))
    if status not in (None, "CONNECTED"):
        return Finding(part, shown, "WhatsApp Manager says why it is so, and what ends it")
    if quality in ("YELLOW", "RED"):
        cure = "send less of what people block or report: Meta may lower its limits"
        return Finding(part, shown, cure, warning=True)
    if _level(told) == "STANDARD" and number.rate > STANDARD_RATE:
        cure = f"headrace number set {number.phone_number_id} --rate {STANDARD_RATE}"
        told_rate = f"{shown}, which is {STANDARD_RATE} a second; its rate is {number.rate}"
        return Finding(part, told_rate, cure, warning=True)
    return Finding(part, shown)


def _shown(told: Told) -> str:
    name = told.get("verified_name") or "without a name"
    return (
        f"{told.get('display_phone_number')} ({name}), {told.get('status')},"
        f" quality {told.get('quality_rating')}, throughput {_level(told)}"
    )


def _register(graph: Graph, told: Told) -> str:
    body = '{"messaging_product": "whatsapp", "pin": "SIX DIGITS"}'
    path = f"{told.get('id')}/register"
    line = f"register it: {graph.curl(path, body)}"
    if told.get("code_verification_status") == "NOT_VERIFIED":
        return f"prove in WhatsApp Manager that it is yours, by a code; then {line}"
    return line


def _level(told: Told) -> str | None:
    throughput = told.get("throughput")
    return throughput.get("level") if isinstance(throughput, dict) else None


def _data(told: Told) -> Told:
    data = told.get("data")
    return data if isinstance(data, dict) else {}


def _opens_nothing(told: Told | Refusal) -> bool:
    if isinstance(told, Refusal):
        return told.blames_token
    return not _data(told).get("is_valid")


def _app_of(told: Told | Refusal) -> str | None:
    return None if isinstance(told, Refusal) else _data(told).get("app_id")


def _apps(told: Told) -> dict[str, str]:
    """Names by id."""
    data = told.get("data")
    listed: Collection[Any] = data if isinstance(data, list) else ()
    found = [one.get("whatsapp_business_api_data") or {} for one in listed]
    return {str(app.get("id")): str(app.get("name")) for app in found}


def _code(body: Any) -> int | None:
    try:
        return int(body["error"]["code"])
    except (LookupError, TypeError, ValueError):
        return None


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
