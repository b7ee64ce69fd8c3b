"""Plants the defects of tests/mutants.toml one by one in a copy; each must turn its tests red."""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "mutants.toml"
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".headrace", ".env*", ".*_cache", "__pycache__")

# pytest's exit codes: anything but these two means that the tests did not run.
GREEN, RED = 0, 1

# A mutant that hangs is caught by pytest's own timeout; this bound is for a run that ignores it.
BOUND_S = 400


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


class MutantsError(Exception):
    """The run proves nothing, and why."""


def read(wanted: list[str]) -> list[Mutant]:
    entries = tomllib.loads(LIST.read_text(encoding="utf-8"))["mutant"]
    mutants = [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]
    chosen = [mutant for mutant in mutants if all(word in mutant.name for word in wanted)]
    if not chosen:
        raise MutantsError(f"no mutant named like {' '.join(wanted)}")
    return chosen


def environment(tree: Path) -> dict[str, str]:
    """The copy comes before the editable install, and nothing is cached.

    A mutant may have the size and the second of what it replaces: a .pyc would hide it.
    """
    return {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}


def check_copy(tree: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "import services, shared; print(services.__file__, shared.__file__)",
    ]
    answer = subprocess.run(  # noqa: S603 - our own interpreter
        command, cwd=tree, env=environment(tree), capture_output=True, text=True, check=True
    )
    if not all(Path(place).is_relative_to(tree) for place in answer.stdout.split()):
        raise MutantsError(f"the tests would run {answer.stdout.strip()}, not the copy")


def pytest(tree: Path, tests: Iterable[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, the repository's own list
            command, cwd=tree, env=environment(tree), stdout=output, stderr=output
        )
        code = ended(process)
        if code not in {GREEN, RED}:
            output.seek(0)
            raise MutantsError(f"pytest could not run {' '.join(tests)}:\n{output.read()[-2000:]}")
    return code


def ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(BOUND_S)
    except subprocess.TimeoutExpired:
        raise MutantsError(f"pytest hung for {BOUND_S} s") from None
    finally:
        process.kill()
        process.wait()


def check_green(tree: Path, mutants: list[Mutant]) -> None:
    """Red tests are no proof if they are red without the defect too."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    if pytest(tree, tests) != GREEN:
        raise MutantsError(f"already red without a defect: {' '.join(tests)}")


def verdict(tree: Path, mutant: Mutant) -> str:
    path = tree / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        return f"stale: its text is {text.count(mutant.old)} times in {mutant.file}"
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        return "caught" if pytest(tree, mutant.tests) == RED else "SURVIVED"
    except MutantsError as error:
        return f"broken: {error}"
    finally:
        path.write_text(text, encoding="utf-8")


def hunt(tree: Path, mutants: list[Mutant]) -> int:
    check_copy(tree)
    check_green(tree, mutants)
    caught = 0
    for mutant in mutants:
        result = verdict(tree, mutant)
        caught += result == "caught"
        print(f"{mutant.name}: {result}", flush=True)
    print(f"{caught} of {len(mutants)} caught")
    return int(caught != len(mutants))


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="headrace-mutants-") as folder:
        tree = Path(folder).resolve() / "tree"
        try:
            shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
            return hunt(tree, read(sys.argv[1:]))
        except MutantsError as error:
            print(f"mutants: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130


if __name__ == "__main__":
    sys.exit(main())
