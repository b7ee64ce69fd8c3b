"""Where the embedded servers keep their files, such that they can reach them."""

import contextlib
import fcntl
import hashlib
import os
import pwd
import re
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from services.cli.wheels import EmbeddedError

# 108 bytes with the closing zero on Linux, 104 on macOS.
LONGEST_SOCKET = 103
SOCKET_NAME = ".s.PGSQL.5432"
# Neither a URL nor a list of folders in Postgres' settings needs quoting with these.
PLAIN = re.compile(r"[\w./-]+", re.ASCII)
# A start makes its folder a moment before it locks it.
FRESH_SECONDS = 60.0
OWN = "set DATABASE_URL and REDIS_URL to servers of yours"


@dataclass(frozen=True)
class Folders:
    base: Path
    data: Path
    sockets: Path
    temporary: bool


def server_user() -> str | None:
    """The account nobody under root, which Postgres refuses to be; else the one who starts it."""
    if os.geteuid() == 0:
        return "nobody"
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        message = f"user id {os.geteuid()} has no passwd entry, which Postgres needs: {OWN}"
        raise EmbeddedError(message) from None
    return None


def make_folders(base: Path | None) -> Folders:
    if base is None:
        temp = _short_temp()
        _remove_abandoned(temp)
        home = Path(tempfile.mkdtemp(prefix="headrace-", dir=temp))
        folders = Folders(home, home / "pg", home / "s", temporary=True)
        try:
            return _prepared(folders)
        except BaseException:
            remove(folders)
            raise
    home = base.absolute()
    # Always the same folder for the same data, so that a killed run leaves nothing to pile up.
    name = f"headrace-{os.geteuid()}-{hashlib.sha256(os.fsencode(home)).hexdigest()[:12]}"
    return _prepared(Folders(home, home / "pg", _short_temp() / name, temporary=False))


def own(folder: Path, user: str | None) -> None:
    """A folder of the servers' user alone; refuses one that somebody else made before us."""
    allowed = {os.geteuid()}
    account = pwd.getpwnam(user) if user else None
    if account:
        allowed.add(account.pw_uid)
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.lstat().st_uid not in allowed:
        message = f"{folder} belongs to somebody else: remove it, or {OWN}"
        raise EmbeddedError(message)
    folder.chmod(0o700)
    if account:
        _give(folder, account)


def lock(path: Path, seconds: float) -> int | None:
    """An open, locked file; None if somebody still holds it after so many seconds."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                os.close(descriptor)
                return None
            time.sleep(0.02)
        else:
            return descriptor


def remove(folders: Folders) -> None:
    shutil.rmtree(folders.sockets, ignore_errors=True)
    if folders.temporary:
        shutil.rmtree(folders.base, ignore_errors=True)


def _remove_abandoned(temp: Path) -> None:
    """What starters left that were killed: a whole cluster each."""
    for home in temp.glob("headrace-????????"):
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            if _is_abandoned(home, held):
                shutil.rmtree(home, ignore_errors=True)


def _is_abandoned(home: Path, held: contextlib.ExitStack) -> bool:
    """Ours, not of this minute, and neither its starter nor one of its servers lives."""
    status = home.lstat()
    age = time.time() - (home / "lock").stat().st_mtime
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or age < FRESH_SECONDS:
        return False
    for path in home.glob("*lock"):
        descriptor = lock(path, seconds=0)
        if descriptor is None:
            return False
        held.callback(os.close, descriptor)
    return True


def _short_temp() -> Path:
    for folder in (Path(tempfile.gettempdir()), Path("/tmp")):  # noqa: S108 -- own() checks inside
        longest = folder / ("headrace-" + "x" * 23) / SOCKET_NAME
        short = len(os.fsencode(longest)) <= LONGEST_SOCKET
        if short and PLAIN.fullmatch(str(folder)) and _open_to_servers(folder):
            return folder
    message = f"no temporary folder with a short path that the servers can reach: {OWN}"
    raise EmbeddedError(message)


def _prepared(folders: Folders) -> Folders:
    user = server_user()
    folders.base.mkdir(parents=True, exist_ok=True)
    if folders.base.stat().st_uid != os.geteuid():
        message = f"{folders.base} belongs to another user: choose another folder, or {OWN}"
        raise EmbeddedError(message)
    # nobody must pass through it, but not look into it
    folders.base.chmod(0o711 if user else 0o700)
    if not _open_to_servers(folders.base):
        message = f"{user} cannot reach {folders.base}: choose a folder outside of it, or {OWN}"
        raise EmbeddedError(message)
    own(folders.sockets, user)
    return folders


def _open_to_servers(folder: Path) -> bool:
    if os.geteuid() != 0:
        return os.access(folder, os.W_OK | os.X_OK)
    resolved = folder.resolve()
    return all(step.stat().st_mode & 0o001 for step in (resolved, *resolved.parents))


def _give(folder: Path, account: pwd.struct_passwd) -> None:
    try:
        os.chown(folder, account.pw_uid, account.pw_gid)
    except PermissionError:
        message = f"root without the right to become nobody cannot start Postgres: {OWN}"
        raise EmbeddedError(message) from None
