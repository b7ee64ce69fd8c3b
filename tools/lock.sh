#!/bin/sh
# Resolves the three files of requirements anew: with hashes, for all platforms, naming no registry.
set -eu
cd "$(dirname "$0")/.."

command -v uv >/dev/null || {
    echo "lock: needs uv: 'pip install uv'" >&2
    exit 1
}

lock() {
    output=$1
    shift
    uv pip compile --quiet --generate-hashes --universal --python-version 3.11 \
        --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
        --output-file "$output" "$@"
}

lock requirements.txt pyproject.toml
lock requirements-dev.txt --extra embedded --extra dev pyproject.toml
# What the image builds the project with.
echo "setuptools>=80" | lock deploy/requirements-build.txt --constraints requirements-dev.txt -
