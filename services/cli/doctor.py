"""`headrace doctor`: what would keep a sender from its work, each with its cure."""

import asyncio
import os
from collections.abc import Awaitable
from dataclasses import asdict

import click

from services.cli import checkups
from services.cli.calling import as_json, tell
from services.cli.checkups import AWAY, DoctorSettings, Finding
from shared.settings import SettingsError, read_secret


@click.command()
@as_json
def doctor(*, as_json: bool) -> None:
    """Look at what a sender needs; run it where and as the sender runs."""
    findings = asyncio.run(examine(DoctorSettings.load()))
    tell([asdict(one) for one in findings], "\n".join(map(_line, findings)), as_json=as_json)
    sick = sum(one.cure is not None for one in findings)
    if sick:
        raise click.ClickException(f"{sick} of {len(findings)} need a cure")


async def examine(settings: DoctorSettings) -> list[Finding]:
    """Every part, also when one of them is away."""
    database, redis = settings.database_url, settings.redis_url
    return [
        *await _found("postgres", checkups.look_at_database(database.get_secret_value())),
        *await _found("redis", checkups.look_at_redis(redis.get_secret_value())),
        checkups.files(settings.concurrency),
        *await _numbers(settings),
    ]


async def _numbers(settings: DoctorSettings) -> list[Finding]:
    try:
        known = await checkups.numbers(settings.database_url.get_secret_value())
    except AWAY:
        return []  # the database's own finding says it
    if not known:
        return [Finding("numbers", "none is registered", "headrace number set")]
    return [await _number(settings, *number) for number in known]


async def _number(settings: DoctorSettings, phone_number_id: str, name: str | None) -> Finding:
    base = f"{settings.graph_url.rstrip('/')}/{settings.graph_version}"
    try:
        token = _token(settings, name)
        return await checkups.look_at_number(base, phone_number_id, token)
    except SettingsError as error:
        return Finding(f"number {phone_number_id}", str(error), "set it for the sender")
    except AWAY as error:
        return checkups.away(f"number {phone_number_id}", error)


def _token(settings: DoctorSettings, name: str | None) -> str:
    """As the sender finds it: the number's own, or the common one."""
    if name is None:
        return settings.access_token.get_secret_value()
    variable = f"HEADRACE_ACCESS_TOKEN_{name.upper()}"
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
    return f"SICK  {finding.part}: {finding.found}; cure: {finding.cure}"
