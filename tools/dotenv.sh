#!/bin/sh
# Writes .env, readable by its owner only, with random secrets; an existing one is never touched.
# sh, since whoever has Docker may have no Python.
set -eu
cd "${1:-$(dirname "$0")/..}"

secret() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

[ ! -e .env ] || exit 0

# Whole or not at all: an interrupted run must not leave a file that the next one would keep.
umask 077
unfinished=$(mktemp .env.XXXXXX)
trap 'rm -f "$unfinished"' EXIT
{
    echo "# Written by make up. Secrets: keep this file to yourself."
    echo "# The simulator in Meta's place; for the real Meta delete this line."
    echo "COMPOSE_PROFILES=simulator"
    echo "POSTGRES_PASSWORD=$(secret)"
    echo "HEADRACE_ADMIN_KEY=$(secret)"
    echo "HEADRACE_ACCESS_TOKEN=$(secret)"
    echo "HEADRACE_APP_SECRETS=$(secret)"
    echo "HEADRACE_VERIFY_TOKEN=$(secret)"
} >"$unfinished"
# A hard link, not a rename: it refuses where .env has appeared meanwhile.
ln "$unfinished" .env 2>/dev/null || exit 0
echo "Wrote .env with random secrets"
