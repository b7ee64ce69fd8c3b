#!/bin/sh
# Starts the stack of docker-compose.yml; the first time it writes .env with random secrets.
set -eu
cd "$(dirname "$0")/.."

docker compose version >/dev/null 2>&1 || {
    echo "up: needs Docker with its compose plugin; 'make demo' runs without it" >&2
    exit 1
}

sh tools/dotenv.sh
exec docker compose up --build --detach --wait "$@"
