"""Services as processes: ready, drained, killed, orphaned, or not able to start."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from running import children, is_running
from waiting import until

from services.cli.processes import ServiceError, ServiceProcess, start_service

ROOT = Path(__file__).parents[2]
APP = """
import asyncio, json, os

def create_app():
    if os.environ.get("BROKEN"):
        raise RuntimeError("HEADRACE_VERIFY_TOKEN is missing")
    return app

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        if os.environ.get("STUCK"):
            await asyncio.sleep(60)
        print("drained", flush=True)
        return await send({"type": "lifespan.shutdown.complete"})
    status = int(os.environ.get("STATUS", "200"))
    await send({"type": "http.response.start", "status": status})
    await send({"type": "http.response.body", "body": json.dumps(scope["client"]).encode()})
"""
STARTER = """
import json, os, signal, sys
from pathlib import Path
from services.cli.processes import start_service

folder = Path(sys.argv[1])
process = start_service("echo", "echo_app:create_app", {"PYTHONPATH": str(folder)}, folder / "log")
process.wait_ready()
print(process.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "echo_app.py").write_text(APP)
    return {"PYTHONPATH": str(tmp_path)}


async def start(processes, env, **more) -> ServiceProcess:
    return await processes.start("echo", "echo_app:create_app", env, **more)


async def get(process: ServiceProcess) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.get(f"{process.url}/any")


async def refuses(process: ServiceProcess) -> bool:
    try:
        await get(process)
    except httpx.ConnectError:
        return True
    return False


async def test_a_service_answers_when_it_is_ready_and_drains_when_stopped(processes, env):
    process = await start(processes, env)
    assert (await get(process)).json()[0] == "127.0.0.1"
    assert process.poll() is None
    process.stop(seconds=20)
    assert "drained" in process.last_lines()
    assert await refuses(process)


async def test_a_service_that_does_not_drain_is_killed_in_time(processes, env):
    process = await start(processes, env | {"STUCK": "1"})
    assert process.stop(seconds=0.2) == -signal.SIGKILL


async def test_a_killed_service_refuses_and_starts_again_on_its_port(processes, env):
    first = await start(processes, env)
    assert first.kill() == -signal.SIGKILL
    assert await refuses(first)
    second = await start(processes, env, port=first.port)
    assert second.url == first.url
    assert (await get(second)).status_code == 200


async def test_a_service_that_ends_at_once_says_why(processes, env):
    with pytest.raises(ServiceError, match=r"(?s)echo ended with status 1; .*VERIFY_TOKEN is mis"):
        await start(processes, env | {"BROKEN": "1"})


async def test_a_service_that_never_gets_ready_is_given_up(processes, env):
    process = await start(processes, env | {"STATUS": "503"}, ready=False)
    with pytest.raises(ServiceError, match=r"echo was not ready after 0\.3 s"):
        process.wait_ready(0.3)


async def test_a_taken_port_is_named(processes, env):
    process = await start(processes, env)
    with pytest.raises(
        ServiceError, match=f"echo cannot have port {process.port}: Address already"
    ):
        start_service("echo", "echo_app:create_app", env, process.log, process.port)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_settings_of_another_server_in_the_shell_do_not_reach_it(processes, env, monkeypatch):
    monkeypatch.setenv("WEB_CONCURRENCY", "2")
    monkeypatch.setenv("UVICORN_HEADERS", "x-from:the-shell")
    process = await start(processes, env)
    assert "x-from" not in (await get(process)).headers
    assert children(process.pid) == []


def run_and_kill_a_starter(folder: Path, env: dict[str, str]) -> int:
    starter = subprocess.Popen(  # noqa: S603 -- the script above
        [sys.executable, "-c", STARTER, folder],
        cwd=ROOT,
        env=os.environ | env,
        stdout=subprocess.PIPE,
    )
    with starter:
        assert starter.stdout
        pid = int(starter.stdout.readline())
        starter.kill()
    return pid


async def test_a_killed_starter_leaves_no_service(tmp_path, env):
    pid = run_and_kill_a_starter(tmp_path, env)
    await until(lambda: not is_running(pid), 20)
    assert "drained" in (tmp_path / "log").read_text()
