"""Commands for API keys: each system and person its own, so that one can be revoked."""

import sys
from collections.abc import Mapping
from typing import Any

import click

from services.cli.calling import as_json, call, tell
from services.cli.rest import Rest
from services.cli.times import local

SCOPES = ("read", "operate", "admin")


@click.group()
def keys() -> None:
    """API keys; HEADRACE_KEY must be one of scope admin."""


@keys.command("create")
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(SCOPES),
    default="operate",
    show_default=True,
    help="Each includes those before it.",
)
@as_json
def create(name: str, scope: str, *, as_json: bool) -> None:
    """Make a key and print it: nobody can show it again."""
    made = call(lambda rest: rest.post("/v1/keys", {"name": name, "scopes": [scope]}))
    tell(made, made["key"], as_json=as_json)


@keys.command("list")
@as_json
def list_keys(*, as_json: bool) -> None:
    """All keys, revoked ones too: id, name, scopes, since when, when last used."""
    found = call(_all)
    tell(found, "\n".join(_line(key) for key in found), as_json=as_json)


@keys.command("revoke")
@click.argument("name_or_id")
@as_json
def revoke(name_or_id: str, *, as_json: bool) -> None:
    """End a key at once. That of HEADRACE_ADMIN_KEY comes back when a sender starts with it."""
    ended = call(lambda rest: _revoke(rest, name_or_id))
    tell(ended, f"Key {ended['name']} is revoked.", as_json=as_json)


async def _all(rest: Rest) -> list[dict[str, Any]]:
    return (await rest.first("/v1/keys", sys.maxsize)).rows


async def _revoke(rest: Rest, name_or_id: str) -> dict[str, Any]:
    """A valid key's name, or else an id."""
    valid = [key for key in await _all(rest) if key["revoked_at"] is None]
    named = [key for key in valid if key["name"] == name_or_id]
    chosen = named or [key for key in valid if str(key["id"]) == name_or_id]
    if not chosen:
        raise click.ClickException(f"no valid key has the name or id {name_or_id}")
    if len(chosen) > 1:
        ids = ", ".join(str(key["id"]) for key in chosen)
        raise click.ClickException(f"{name_or_id} is the name of several keys: say an id ({ids})")
    ended: dict[str, Any] = await rest.post(f"/v1/keys/{chosen[0]['id']}/revoke")
    return ended


def _line(key: Mapping[str, Any]) -> str:
    used = f"  used {local(key['last_used_at'])}" if key["last_used_at"] else "  never used"
    ended = f"  revoked {local(key['revoked_at'])}" if key["revoked_at"] else ""
    scopes = ",".join(key["scopes"])
    made = local(key["created_at"])
    return f"{key['id']:>4}  {key['name']:<24}  {scopes:<20}  {made}{used}{ended}"
