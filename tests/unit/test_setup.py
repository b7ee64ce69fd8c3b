"""Setting up on machines that lack something: one line, with the cure."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the set-up reads, without a .venv."""
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / "tools", folder / "tools")
    for name in ("pyproject.toml", "requirements-dev.txt"):
        shutil.copy(ROOT / name, folder)
    return folder


def program(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def python(path: Path, answer: str) -> Path:
    """Answers the probe like that; when it is chosen, says who it is."""
    return program(path, f'if [ "$1" = -c ]; then {answer}; else echo "chosen: $0"; fi')


def setup(checkout: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own script
        ["/bin/sh", checkout / "tools" / "setup.sh"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={"PATH": "/usr/bin:/bin", **environment},
    )


def complaint(answer: subprocess.CompletedProcess[str]) -> str:
    """Its only line; everything else about a failure would be noise."""
    assert answer.returncode == 1, answer
    (line,) = answer.stderr.splitlines()
    assert line.startswith("setup: ")
    return line


def test_an_old_python_is_named_with_the_cure(checkout: Path, tmp_path: Path) -> None:
    old = python(tmp_path / "python3", "echo old 3.9")

    line = complaint(setup(checkout, PYTHON=str(old)))

    assert f"needs Python 3.11 or newer, found {old} (3.9): install one" in line


def test_a_python_without_venv_is_named_with_the_cure(checkout: Path, tmp_path: Path) -> None:
    bare = python(tmp_path / "python3", "echo no-venv 3.12")

    line = complaint(setup(checkout, PYTHON=str(bare)))

    assert f"{bare} (3.12) lacks the venv module: install it" in line
    assert "apt install python3-venv" in line


def test_a_python_that_does_not_run_is_passed_over(checkout: Path, tmp_path: Path) -> None:
    program(tmp_path / "first" / "python3.14", "echo 'command not found' >&2; exit 127")
    python(tmp_path / "first" / "python3.13", "echo no-venv 3.13")
    python(tmp_path / "first" / "python3.12", "echo works 3.12")
    newest = python(tmp_path / "second" / "python3.13", "echo works 3.13")
    path = f"{tmp_path}/first:{tmp_path}/second:/usr/bin:/bin"

    answer = setup(checkout, PATH=path)

    assert answer.stdout == f"chosen: {newest}\n"


def test_windows_is_sent_to_wsl(checkout: Path, tmp_path: Path) -> None:
    program(tmp_path / "bin" / "uname", "echo MINGW64_NT-10.0")

    line = complaint(setup(checkout, PATH=f"{tmp_path}/bin:/usr/bin:/bin"))

    assert "WSL" in line


def test_without_a_network_it_says_so_and_leaves_no_finished_venv(checkout: Path) -> None:
    nowhere = {
        "PYTHON": sys.executable,
        "PIP_INDEX_URL": "http://127.0.0.1:1/simple",
        "PIP_RETRIES": "0",
        "PIP_CONFIG_FILE": os.devnull,
        "HOME": "/nonexistent",
    }

    line = complaint(setup(checkout, **nowhere))

    assert "no package index reached" in line
    assert not (checkout / ".venv" / ".ready").exists()


def test_make_up_without_docker_is_one_line_and_writes_nothing(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "dirname").symlink_to("/usr/bin/dirname")

    answer = subprocess.run(  # noqa: S603 - our own script
        ["/bin/sh", tmp_path / "tools" / "up.sh"],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
        env={"PATH": str(bare)},
    )

    assert answer.returncode == 1
    (line,) = answer.stderr.splitlines()
    assert line == "up: needs Docker with its compose plugin; 'make demo' runs without it"
    assert not (tmp_path / ".env").exists()


def write_dotenv(folder: Path) -> str:
    command: list[str | Path] = ["/bin/sh", ROOT / "tools" / "dotenv.sh", folder]
    subprocess.run(command, timeout=10, check=True)  # noqa: S603 - our own script
    return (folder / ".env").read_text()


def test_dotenv_is_private_and_alone(tmp_path: Path) -> None:
    write_dotenv(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == [".env"]
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600


def test_dotenv_is_random(tmp_path: Path) -> None:
    lines = write_dotenv(tmp_path).splitlines()
    (tmp_path / ".env").unlink()
    lines += write_dotenv(tmp_path).splitlines()

    pairs = [line.split("=") for line in lines if "=" in line]
    secrets = [value for name, value in pairs if name != "COMPOSE_PROFILES"]
    assert len(set(secrets)) == len(secrets) == 10
    assert {len(secret) for secret in secrets} == {48}


def test_a_dotenv_that_exists_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("MINE=1\n")

    assert write_dotenv(tmp_path) == "MINE=1\n"
