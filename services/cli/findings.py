"""What stands against a campaign, or holds it: a line each, with its cure as a command."""

import re
from collections.abc import Mapping
from typing import Any

from services.cli.times import local

# The API names calls; who reads this has the command line.
_COMMANDS = (
    (re.compile(r"POST /v1/(halt|unhalt)\b"), r"headrace \1"),
    (re.compile(r"POST /v1/phone-numbers/(\w+)/(resume)"), r"headrace number \2 \1"),
    (re.compile(r"POST /v1/campaigns/([\w-]+)/recipients"), r"headrace campaign upload \1 FILE"),
    (
        re.compile(r"POST /v1/campaigns/([\w-]+)/start with another at"),
        r"headrace campaign start \1 --at TIME",
    ),
    (re.compile(r"POST /v1/campaigns/([\w-]+)/(start|resume|close)\b"), r"headrace campaign \2 \1"),
    (re.compile(r"GET /v1/campaigns/([\w-]+)/(rejects)"), r"headrace campaign \2 \1"),
    (re.compile(r"GET /v1/campaigns/([\w-]+)(?![\w/-])"), r"headrace campaign report \1"),
)


def said(finding: Mapping[str, Any]) -> str:
    """What it is, until when, and what would end it."""
    what = ": ".join(part for part in (finding["reason"], finding.get("detail")) if part)
    until = f", until {local(finding['ends_at'])}" if finding.get("ends_at") else ""
    cure = f" (cure: {_as_command(finding['cure'])})" if finding.get("cure") else ""
    return what + until + cure


def _as_command(cure: str) -> str:
    for call, command in _COMMANDS:
        cure = call.sub(command, cure)
    return cure
