#!/bin/sh
# Makes .venv ready. POSIX sh, since on a fresh machine nobody knows yet which Python exists:
# it finds the newest one that works and hands over to tools/environment.py.
set -u
cd "$(dirname "$0")/.." || exit 1

fail() {
    echo "setup: $1" >&2
    exit 1
}

# The usual case, some milliseconds: a finished .venv proves itself, and keeps the Python it was made with.
if [ -f .venv/.ready ] && .venv/bin/python tools/environment.py --is-ready 2>/dev/null; then
    exit 0
fi

case "$(uname -s)" in
    Linux | Darwin) ;;
    MINGW* | MSYS* | CYGWIN*) fail "Windows is supported through WSL only: install it ('wsl --install') and run this command there" ;;
    *) fail "$(uname -s) is not supported: use Linux or macOS" ;;
esac

# Also Python 2 must be able to read this and say that it is too old.
probe='
import sys
state = "old" if sys.version_info < (3, 11) else "works"
try:
    import venv, ensurepip
except ImportError:
    state = "old" if state == "old" else "no-venv"
print("%s %d.%d" % ((state,) + tuple(sys.version_info[:2])))'

names="python3.14:python3.13:python3.12:python3.11:python3:python"
places="$PATH:/usr/local/bin:/opt/homebrew/bin"
if [ -n "${PYTHON:-}" ]; then
    PYTHON=$(command -v "$PYTHON") || fail "PYTHON names nothing that can be run"
    names=$(basename "$PYTHON")
    places=$(dirname "$PYTHON")
fi

old=""
without_venv=""
IFS=:
for name in $names; do
    for place in $places; do
        candidate="$place/$name"
        [ -x "$candidate" ] || continue
        # Being there proves nothing: a version manager's shim may stand for a Python that is not installed.
        answer=$("$candidate" -c "$probe" 2>/dev/null) || continue
        case "$answer" in
            works*) exec "$candidate" tools/environment.py ;;
            no-venv*) without_venv="${without_venv:-$candidate (${answer#* })}" ;;
            old*) old="$old${old:+, }$candidate (${answer#* })" ;;
        esac
    done
done

[ -z "$without_venv" ] || fail "$without_venv lacks the venv module: install it (Debian, Ubuntu: 'apt install python3-venv', or pythonX.Y-venv for that version) and run this again"
fail "needs Python 3.11 or newer, found ${old:-none}: install one (Debian, Ubuntu: 'apt install python3 python3-venv'; macOS: 'brew install python'), or name it: make PYTHON=/path/to/python3 ..."
