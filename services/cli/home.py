"""What `headrace up` keeps between two runs: its data, its secrets, and the logs of both."""

import contextlib
import json
import os
import shutil
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path

from services.cli.folders import lock
from services.cli.stack import Secrets
from services.cli.wheels import EmbeddedError


@dataclass(frozen=True)
class Home:
    """A folder that belongs to one running stack at a time."""

    path: Path
    logs: Path
    secrets: Secrets


def state_folder() -> Path:
    """Where data are kept when nobody says otherwise."""
    if os.geteuid() == 0:
        # The servers run as nobody, who cannot reach root's home; `occupy` looks whose it is.
        return Path("/var/tmp/headrace")  # noqa: S108 -- see above
    told = Path(os.environ.get("XDG_STATE_HOME", ""))
    base = told if told.is_absolute() else Path.home() / ".local" / "state"
    return base / "headrace"


@contextlib.contextmanager
def occupy(folder: Path) -> Generator[Home]:
    """Have the folder alone until the end; the logs of the run before are kept beside the new."""
    path = folder.absolute()
    make_folder(path)
    # A link of somebody else's may lead anywhere at any time; one's own stays.
    if {path.lstat().st_uid, path.stat().st_uid} != {os.geteuid()}:
        message = f"{path} belongs to somebody else: choose another folder with --data"
        raise EmbeddedError(message)
    path = path.resolve()
    held = lock(path / "up.lock", seconds=0)
    if held is None:
        message = f"`headrace up` runs already with the data in {path}: stop it first"
        raise EmbeddedError(message)
    try:
        yield Home(path, _fresh_logs(path), _secrets(path / "secrets.json"))
    finally:
        os.close(held)


@contextlib.contextmanager
def alone(folder: Path) -> Generator[None]:
    """Have the folder in which the shells look for their stack, until the end."""
    make_folder(folder)
    held = lock(folder / "up.lock", seconds=0)
    if held is None:
        message = f"{folder} is another `headrace up`'s, which runs: start this in another folder"
        raise EmbeddedError(message)
    try:
        yield
    finally:
        os.close(held)


def make_folder(path: Path) -> None:
    """For the user alone, unless it is there."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        message = f"{error.filename} is in the way of a folder: move it away"
        raise EmbeddedError(message) from None


def write_private(path: Path, text: str) -> None:
    """All of it or nothing, and for the user alone from the first moment."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600, exist_ok=False)
    fresh.write_text(text)
    fresh.replace(path)


def _fresh_logs(path: Path) -> Path:
    logs, before = path / "logs", path / "logs.before"
    shutil.rmtree(before, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        logs.rename(before)
    logs.mkdir(mode=0o700)
    return logs


def _secrets(path: Path) -> Secrets:
    if not path.exists():
        write_private(path, json.dumps(asdict(Secrets())))
    try:
        return Secrets(**json.loads(path.read_text()))
    except (ValueError, TypeError):
        message = f"{path} is damaged: remove it, and new secrets and a new key are made"
        raise EmbeddedError(message) from None
