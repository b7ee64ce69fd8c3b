"""The command `headrace` from its first moment, quiet at Ctrl-C also while its parts are loaded."""

import importlib

from services.cli.interrupts import INTERRUPTED, end_at_once


def main() -> int:
    """Entry point; returns the exit code."""
    end_at_once()
    # Not at the top: an import takes long enough to be interrupted.
    app = importlib.import_module("services.cli.app")
    try:
        return int(app.main())
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        end_at_once()
