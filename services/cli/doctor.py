"""`headrace doctor`: what would keep a sender from its work, each with its cure."""

import asyncio
import os
from collections.abc import Awaitable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from services.cli import checkups
from services.cli.calling import as_json, tell
from services.cli.checkups import AWAY, DoctorSettings, Finding, Number
from services.cli.meta_checkups import look, open_graph, unseen
from shared.settings import SettingsError, read_secret

# What `headrace up` writes for as long as it runs.
OF_UP = Path(".headrace/sender.env")


@click.command()
@as_json
def doctor(*, as_json: bool) -> None:
    """Look at what a sender needs; run it where and as the sender runs."""
    findings = asyncio.run(examine(_settings()))
    told = [asdict(one) | {"level": one.level} for one in findings]
    tell(told, "\n".join(map(_line, findings)), as_json=as_json)
    sick = sum(one.level == "sick" for one in findings)
    if sick:
        raise click.ClickException(f"{sick} of {len(findings)} need a cure")


def _settings() -> DoctorSettings:
    try:
        return DoctorSettings.load()
    except SettingsError as error:
        if not OF_UP.exists():
            raise
        line = f"{error}; for the stack of `headrace up`: (. {OF_UP}; headrace doctor)"
        raise click.ClickException(line) from None


async def examine(settings: DoctorSettings) -> list[Finding]:
    """Every part, also when one of them is away."""
    database, redis = settings.database_url.get_secret_value(), settings.redis_url
    looked = checkups.look_at_database(database, pgbouncer=settings.pgbouncer)
    return [
        *await _found("postgres", looked),
        *await _found("redis", checkups.look_at_redis(redis.get_secret_value())),
        checkups.files(settings.concurrency),
        checkups.recipients(settings.allowed_recipients),
        checkups.meta(settings.graph_url, settings.graph_version),
        *await _numbers(settings),
    ]


async def _numbers(settings: DoctorSettings) -> list[Finding]:
    try:
        known = await checkups.numbers(settings.database_url.get_secret_value())
    except AWAY:
        return []  # the database's own finding says it
    found = [] if known else [Finding("numbers", "none is registered", "headrace number set")]
    names = dict.fromkeys(number.token_name for number in known) or [None]
    for name in names:
        found += await _meta(settings, name, [one for one in known if one.token_name == name])
    now = datetime.now(UTC)
    return found + [checkups.webhook_finding(number, now) for number in known]


async def _meta(settings: DoctorSettings, name: str | None, known: list[Number]) -> list[Finding]:
    """What one token opens."""
    variable = f"HEADRACE_ACCESS_TOKEN_{name.upper()}" if name else "HEADRACE_ACCESS_TOKEN"
    base = f"{settings.graph_url.rstrip('/')}/{settings.graph_version}"
    try:
        token = _own(variable) if name else settings.access_token.get_secret_value()
    except SettingsError as error:
        return [Finding(f"token {variable}", str(error), "set it for the sender"), *unseen(known)]
    async with open_graph(base, token, variable) as graph:
        try:
            return await look(graph, token, known)
        except AWAY as error:
            return [checkups.away(f"Meta with {variable}", error), *unseen(known)]


def _own(variable: str) -> str:
    """The token of a number with its own, as the sender finds it."""
    path = os.environ.get(f"{variable}_FILE")
    token = read_secret(f"{variable}_FILE", path) if path else os.environ.get(variable, "")
    if not token.strip():
        raise SettingsError(f"{variable} is missing")
    return token.strip()


async def _found(part: str, look: Awaitable[list[Finding]]) -> list[Finding]:
    try:
        return await look
    except AWAY as error:
        return [checkups.away(part, error)]


def _line(finding: Finding) -> str:
    if finding.cure is None:
        return f"well  {finding.part}: {finding.found}"
    word = "SICK" if finding.level == "sick" else finding.level
    return f"{word}  {finding.part}: {finding.found}; cure: {finding.cure}"
