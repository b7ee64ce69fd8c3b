"""Stands in for curl where a machine has none; understands what the README uses, and no more."""

import argparse
import sys
import urllib.error
import urllib.request
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("url")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-S", action="store_true")
    parser.add_argument("--fail-with-body", action="store_true")
    parser.add_argument("-w", default="")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-X", dest="method")
    parser.add_argument("-d", dest="data")
    parser.add_argument("--data-binary", dest="exact")
    parser.add_argument("-o", dest="output")
    asked = parser.parse_args()
    body = _body(asked.data, asked.exact)
    headers = dict(header.split(": ", 1) for header in asked.headers)
    request = urllib.request.Request(asked.url, body, headers, method=asked.method)  # noqa: S310 - a test's own server
    failed = False
    try:
        answer = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request)
    except urllib.error.HTTPError as refusal:
        answer, failed = refusal, asked.fail_with_body
    with answer:
        content = answer.read()
    if asked.output:
        Path(asked.output).write_bytes(content)
    else:
        sys.stdout.buffer.write(content)
    sys.stdout.write(asked.w.replace("\\n", "\n"))
    if failed:
        sys.exit(22)


def _body(data: str | None, exact: str | None) -> bytes | None:
    given = exact or data
    if given is None:
        return None
    if not given.startswith("@"):
        return given.encode()
    content = Path(given[1:]).read_bytes()
    return content if exact else content.replace(b"\n", b"")


main()
