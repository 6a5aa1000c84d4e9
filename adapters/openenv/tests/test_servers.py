"""The servers of a folder are started, shared among episodes, and gone with the process that started them."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install uvicorn websockets")

from agentrl_openenv.servers import Folder, Server, serving
from agentrl_openenv.wire import ServerError

from agentrl.env import Message, StopReason, make_env, play, resolve, testing
from agentrl.errors import ConfigError

APP = """
import json
import os

from answers import RIGHT

PAGES = {
    "/health": {"status": "healthy"},
    "/pid": os.getpid(),
    "/metadata": {"description": "Guess.", "name": "guess", "version": "1"},
    "/schema": {"action": {"properties": {"guess": {"type": "integer"}}, "required": ["guess"]}},
}
sessions = 0
print("the app is loaded", flush=True)


async def app(scope, receive, send):
    if scope["type"] == "http":
        page = PAGES.get(scope["path"])
        await send({"type": "http.response.start", "status": 200 if page else 404})
        await send({"type": "http.response.body", "body": json.dumps(page).encode()})
    elif scope["type"] == "websocket":
        await session(receive, send)


async def session(receive, send):
    global sessions
    await receive()
    await send({"type": "websocket.accept"})
    if sessions:
        await say(send, "error", {"code": "CAPACITY_REACHED", "message": "full"})
        return await send({"type": "websocket.close"})
    sessions += 1
    try:
        while (event := await receive())["type"] == "websocket.receive":
            asked = json.loads(event["text"])
            done = asked["type"] == "step"
            reward = float(asked["data"]["guess"] == RIGHT) if done else None
            seen = {"observation": {"text": f"Server {os.getpid()}."}, "reward": reward, "done": done}
            await say(send, "observation", seen)
    finally:
        sessions -= 1


async def say(send, kind, data):
    await send({"type": "websocket.send", "text": json.dumps({"type": kind, "data": data})})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "my_env"
    (home / "server").mkdir(parents=True)
    (home / "openenv.yaml").write_text("spec_version: 1\nname: my_env\napp: server.app:app\n")
    (home / "answers.py").write_text("RIGHT = 7\n")
    (home / "server" / "app.py").write_text(APP)
    return home


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    testing.close_shared_sync()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_folder_is_served_by_as_many_processes_as_asked_for_and_they_end(folder: Path) -> None:
    seen: set[str] = set()

    def guess(messages: list[Message]) -> str:
        seen.add(str(messages[0]["content"]).rpartition("Server ")[2].rstrip("."))
        return "7"

    env = make_env(f"openenv:{folder}", servers=2)
    assert "2 OpenEnv servers of server.app:app" in env.preflight()
    episodes = [episode for index in range(12) for episode in await asyncio.to_thread(play, env, guess, index=index)]
    assert {episode.reward for episode in episodes} == {1.0}
    assert len(seen) == 2
    assert all(is_running(int(pid)) for pid in seen)
    await asyncio.to_thread(testing.close_shared_sync)
    assert not any(is_running(int(pid)) for pid in seen)


def test_an_app_that_does_not_start_ends_the_episode_with_the_end_of_its_log(folder: Path) -> None:
    (folder / "answers.py").write_text("raise RuntimeError('no answers today')\n")
    trajectory = testing.rehearse(make_env(f"openenv:{folder}"), ["7"], timeout_s=60)
    assert trajectory.stop_reason is StopReason.INFRA_ERROR
    assert "no answers today" in trajectory.error
    assert "before it served" in trajectory.error


def test_a_server_ends_with_a_process_that_is_killed(folder: Path) -> None:
    code = (
        "import asyncio, sys; from pathlib import Path; import httpx\n"
        "from agentrl_openenv.servers import Folder, serving\n"
        "async def main():\n"
        f"    async with serving(Folder.read(Path({str(folder)!r})), 1, 60) as servers:\n"
        "        print(httpx.get((await servers.urls())[0] + '/pid').json(), flush=True); sys.stdin.read()\n"
        "asyncio.run(main())"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        watch = os.pidfd_open(pid)
        parent.send_signal(signal.SIGKILL)
    try:
        assert select.select([watch], [], [], 50)[0], "the server outlived its parent by 50 s"
    finally:
        os.close(watch)


async def test_a_server_that_is_killed_is_replaced(folder: Path) -> None:
    seen: list[int] = []

    def guess(messages: list[Message]) -> str:
        seen.append(int(str(messages[0]["content"]).rpartition("Server ")[2].rstrip(".")))
        return "7"

    env = make_env(f"openenv:{folder}")
    assert [episode.reward for episode in await asyncio.to_thread(play, env, guess)] == [1.0]
    os.kill(seen[0], signal.SIGKILL)
    assert [episode.reward for episode in await asyncio.to_thread(play, env, guess)] == [1.0]
    assert len(set(seen)) == 2


async def test_the_log_of_a_server_is_kept_if_it_ended_by_itself(folder: Path) -> None:
    kept, _ = servers = [Server(Folder.read(folder), 60) for _ in range(2)]
    await asyncio.gather(*(server.start() for server in servers))
    assert all("the app is loaded" in server.log.read_text() for server in servers)
    await killed(kept.url)
    logs = [server.log for server in servers]
    for server in servers:
        server.end()
    assert [log.exists() for log in logs] == [True, False]
    kept.log.unlink()


async def killed(url: str) -> None:
    """Kill a server, and wait until it is gone."""
    async with httpx.AsyncClient() as client:
        pid = (await client.get(f"{url}/pid")).json()
    watch = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert await asyncio.to_thread(select.select, [watch], [], [], 50) == ([watch], [], [])
    os.close(watch)


async def test_a_server_that_does_not_come_back_stops_no_other(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with serving(Folder.read(folder), 2, 60) as servers:
        lost, stays = await servers.urls()
        (folder / "answers.py").write_text("raise RuntimeError('no answers today')\n")
        await killed(lost)
        async with asyncio.timeout(20):
            for _ in range(50):
                assert await servers.urls() == [stays]
            while not (said := capfd.readouterr().err):  # noqa: ASYNC110 (another task prints it)
                await asyncio.sleep(0.01)
        assert "no answers today" in said
        await killed(stays)
        with pytest.raises(ServerError, match="no answers today"):
            await servers.urls()
        (folder / "answers.py").write_text("RIGHT = 7\n")
        assert not {lost, stays} & set(await servers.urls())


async def test_a_start_that_is_cancelled_or_late_is_made_again(folder: Path) -> None:
    (folder / "answers.py").write_text("import time\ntime.sleep(600)\n")
    server = Server(Folder.read(folder), 0.3)
    with pytest.raises(ServerError, match="did not answer GET /health within"):
        await server.start()
    assert not server.is_ready
    starting = asyncio.ensure_future(server.start())
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait({starting})
    assert not server.is_ready
    server.end()


def test_what_is_no_folder_of_openenv_is_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no openenv\.yaml that can be read"):
        make_env(f"openenv:{tmp_path}").preflight()
    with pytest.raises(ConfigError, match=r"cannot be run.*--env\.python_path"):
        make_env(f"openenv:{folder}", python_path=str(tmp_path / "python")).preflight()
    (folder / "openenv.yaml").write_text("app: [1]")
    with pytest.raises(ConfigError, match="`app` is no text"):
        make_env(f"openenv:{folder}").preflight()


def test_the_folder_is_what_the_environment_wraps(folder: Path) -> None:
    assert resolve(f"openenv:{folder}").wraps == (str(folder),)
