"""What Meta tells beside sends: the token, the account's subscription, its numbers."""

import hmac
import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.responses import JSONResponse

from services.simulator import replies
from services.simulator.scenario import Account
from services.simulator.world import World

# One app for every token: whoever asks for the subscription of an account is its app.
APP = {"id": "670843887433847", "name": "Simulated app", "link": "https://example.com/"}
_STARTED = int(time.time())


class RefusedError(Exception):
    """Meta's code for what is wrong with the call."""


def graph(world: World, access_token: str | None) -> APIRouter:
    """Meta's paths that are no sends, whatever their version."""

    async def authorized(authorization: Annotated[str, Header()] = "") -> None:
        if not authorization.startswith("Bearer "):
            raise RefusedError(104)
        given = authorization.removeprefix("Bearer ").encode()
        if access_token and not hmac.compare_digest(given, access_token.encode()):
            raise RefusedError(190)
        if not world.scenario.account.token_valid:
            raise RefusedError(190)

    router = APIRouter(dependencies=[Depends(authorized)], include_in_schema=False)
    router.include_router(_account(world), prefix="/{version}")
    router.include_router(_number(world), prefix="/{version}")

    @router.api_route("/{path:path}", methods=["GET", "POST", "DELETE"])
    async def elsewhere(path: str) -> Response:
        return _unknown(f"/{path}")

    return router


async def refused(_: Request, error: Exception) -> Response:
    """The answer to a `RefusedError`."""
    status, body = replies.refused(error.args[0])
    return Response(body, status, media_type="application/json")


def _account(world: World) -> APIRouter:
    router = APIRouter()

    @router.get("/debug_token")
    async def debug_token(input_token: str) -> dict[str, Any]:
        if not input_token:
            raise RefusedError(100)
        return {"data": _token(world.scenario.account)}

    @router.get("/{waba_id}/subscribed_apps")
    async def subscribed(waba_id: str) -> dict[str, Any]:
        there = world.scenario.account.subscribed or waba_id in world.subscribed
        return {"data": [{"whatsapp_business_api_data": APP}] if there else []}

    @router.post("/{waba_id}/subscribed_apps")
    async def subscribe(waba_id: str) -> dict[str, bool]:
        world.subscribed.add(waba_id)
        return {"success": True}

    return router


def _number(world: World) -> APIRouter:
    router = APIRouter()

    @router.post("/{number}/register")
    async def register(number: str) -> dict[str, bool]:
        world.registered.add(number)
        return {"success": True}

    @router.get("/{number}")
    async def show(number: str, fields: str = "") -> Response:
        if not number.isdecimal():
            return _unknown(f"/{number}")
        account = world.scenario.account
        there = account.registered or number in world.registered
        told = _node(number, account, registered=there)
        wanted = {"id", *fields.split(",")} if fields else set(_USUAL)
        return JSONResponse({name: value for name, value in told.items() if name in wanted})

    return router


# What the node shows to whoever asks for no fields.
_USUAL = ("id", "display_phone_number", "verified_name", "quality_rating")


def _node(number: str, account: Account, *, registered: bool) -> dict[str, Any]:
    return {
        "id": number,
        "display_phone_number": _display(number),
        "verified_name": "Simulated business",
        "quality_rating": account.quality_rating,
        "code_verification_status": "VERIFIED",
        "status": account.status if registered else "PENDING",
        "platform_type": "CLOUD_API" if registered else "NOT_APPLICABLE",
        "throughput": {"level": "STANDARD" if registered else "NOT_APPLICABLE"},
    }


def _display(number: str) -> str:
    """A number is no id; one of those that are kept free for stories."""
    return f"+44 7700 900{int(number) % 1000:03}"


def _token(account: Account) -> dict[str, Any]:
    expires = account.token_expires_in_s
    return {
        "app_id": APP["id"],
        "type": "SYSTEM_USER",
        "application": APP["name"],
        "expires_at": 0 if expires is None else int(time.time() + expires),
        "issued_at": _STARTED,
        "is_valid": expires is None or expires > 0,
        "scopes": list(account.scopes),
    }


def _unknown(path: str) -> Response:
    status, body = replies.unknown_object(path)
    return Response(body, status, media_type="application/json")
