"""The hunt for surviving mutants, on a project of one line."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUM = "def total(a, b):\n    return a + b\n"
MUTANT = """
[[mutant]]
name = "the sum becomes a difference"
file = "shared/__init__.py"
old = "{old}"
new = "{new}"
tests = ["tests/test_sum.py"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "services/__init__.py": "",
        "shared/__init__.py": SUM,
        "tests/test_sum.py": "import shared\n\n"
        "def test_sum():\n    assert shared.total(1, 2) == 3\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    return tmp_path


def hunt(project: Path, old: str, new: str) -> tuple[int, str]:
    (project / "tests/mutants.toml").write_text(MUTANT.format(old=old, new=new))
    answer = subprocess.run(
        [sys.executable, "tools/mutants.py"],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return answer.returncode, answer.stdout + answer.stderr


def test_a_defect_that_a_test_sees_is_caught(project: Path) -> None:
    assert hunt(project, "a + b", "a - b") == (
        0,
        "the sum becomes a difference: caught\n1 of 1 caught\n",
    )
    assert (project / "shared/__init__.py").read_text() == SUM


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("a + b", "b + a", "SURVIVED"),
        ("a * b", "a - b", "stale: its text is 0 times in shared/__init__.py"),
        ("return a + b", "return (", "broken: pytest could not run tests/test_sum.py"),
    ],
)
def test_everything_else_is_a_failure(project: Path, old: str, new: str, verdict: str) -> None:
    code, output = hunt(project, old, new)

    assert code == 1
    assert verdict in output


def test_tests_that_are_red_anyway_prove_nothing(project: Path) -> None:
    (project / "shared/__init__.py").write_text("def total(a, b):\n    return a * b\n")

    assert hunt(project, "a * b", "a - b") == (
        1,
        "mutants: already red without a defect: tests/test_sum.py\n",
    )
