"""A served environment has the semantics of one in the worker's process, for any number of workers."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from agentrl.engine.scripted import Delay
from agentrl.env import close_shared, make_env
from agentrl.env.dry_run.verdict import DryRunRequest
from agentrl.env.testing import tool_call
from agentrl.errors import AgentRLError, ConfigError
from agentrl.hosting import sockets
from agentrl.hosting.environments import environment, inspect_env
from agentrl.hosting.peer import CANCEL_S
from agentrl.hosting.sockets import TOKEN, EnvServer
from agentrl.hosting.wire import PROTOCOL
from agentrl.types import StopReason
from tests.unit.hosting.stages import FILE, Stage, stored

SECRET = "a secret of many characters"
Play = Callable[..., Awaitable[Stage]]


@pytest.fixture
async def stages() -> AsyncIterator[AsyncExitStack]:
    """Closes what a test opens, newest first."""
    async with AsyncExitStack() as stack:
        yield stack
    await close_shared()


async def stage_at(stages: AsyncExitStack, address: str, *script: Any, restarts: int = 2, **options: Any) -> Stage:
    made = await Stage.of(environment(address, options, None, restarts), script)
    stages.push_async_callback(made.close)
    return made


async def served(stages: AsyncExitStack, env: str = "Chat", token: str = "", **options: Any) -> str:
    """The address of a server in this process."""
    name = f"{FILE}:{env}"
    port = await stages.enter_async_context(EnvServer(name, options, token).listening())
    return f"agentrl://127.0.0.1:{port}/{name}"


@pytest.mark.parametrize(
    ("env", "options", "script"),
    [
        ("Chat", {}, (tool_call("double", number=4), "b", "c")),
        ("Chat", {"fault": "respond"}, ()),
        ("Chat", {"fault": "score", "how": "infra"}, ()),
        ("Hasty", {"fault": "setup", "how": "hang"}, ()),
        ("Agent", {}, ()),
        ("TokenAgent", {}, ()),
    ],
)
async def test_a_trajectory_is_the_same_as_in_the_workers_process(
    stages: AsyncExitStack, env: str, options: dict[str, Any], script: tuple[Any, ...]
) -> None:
    there = await stage_at(stages, await served(stages, env, **options), *script)
    here = await Stage.of(environment(f"{FILE}:{env}", options), script)
    stages.push_async_callback(here.close)
    assert stored(await there.run(3)) == stored(await here.run(3))


async def test_the_episodes_of_a_worker_that_leaves_are_torn_down_and_no_others(
    stages: AsyncExitStack, tmp_path: Path
) -> None:
    address = await served(stages, folder=str(tmp_path))
    asked, file = asyncio.Event(), tmp_path / "lines"

    async def hang() -> None:
        asked.set()
        await asyncio.Event().wait()

    leaves, stays = await stage_at(stages, address, Delay(hang, "")), await stage_at(stages, address, "a", "b", "c")
    running = asyncio.ensure_future(leaves.run(1))
    async with asyncio.timeout(20):
        await asked.wait()
        await (await leaves.env.link()).close()  # type: ignore[union-attr]
        running.cancel()
        await asyncio.wait({running})
    assert (await stays.run(2)).is_scored
    async with asyncio.timeout(20):
        while file.read_text().count("torn down") < 2:  # noqa: ASYNC110 (the server does it)
            await asyncio.sleep(0.02)
    assert {line for line in file.read_text().splitlines() if line.startswith("torn")} == {"torn down 1", "torn down 2"}


async def test_a_server_serves_what_it_loaded(stages: AsyncExitStack, tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(FILE.read_text())
    port = await stages.enter_async_context(EnvServer(f"{own}:Chat", {}).listening())
    stage = await stage_at(stages, f"agentrl://127.0.0.1:{port}/{own}:Chat")
    assert (await stage.run()).is_scored
    own.write_text(f"{FILE.read_text()}# a comment\n")
    link = await stage.env.link()  # type: ignore[union-attr]
    link._connection.kill()
    await asyncio.wait({link._running})
    assert (await stage.run()).is_scored


async def test_a_lost_connection_is_made_again(stages: AsyncExitStack) -> None:
    stage = await stage_at(stages, await served(stages))
    assert (await stage.run()).is_scored
    link = await stage.env.link()  # type: ignore[union-attr]
    link._connection.kill()
    assert (await stage.run()).stop_reason is not StopReason.ENV_ERROR
    assert (await stage.run()).is_scored


async def test_a_server_is_used_by_those_with_its_token_alone(
    stages: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = await served(stages, token=SECRET)
    for wrong in ("", "another secret of many"):
        monkeypatch.setenv(TOKEN, wrong)
        with pytest.raises(ConfigError, match=f"status 401: set {TOKEN}"):
            await (await stage_at(stages, address)).env.facts()
    monkeypatch.setenv(TOKEN, SECRET)
    assert (await (await stage_at(stages, address)).env.facts()).name == "Chat"


async def test_what_a_server_does_not_serve_is_refused(stages: AsyncExitStack) -> None:
    address = await served(stages)
    with pytest.raises(ConfigError, match=r"has the environment .*mine\.py:Chat, not guess"):
        await (await stage_at(stages, address.replace(str(FILE), "guess").removesuffix(":Chat"))).env.facts()
    with pytest.raises(ConfigError, match=r"--env\.turns: the keys of a served environment"):
        await (await stage_at(stages, address, turns=2)).env.facts()


async def test_an_episode_that_is_open_is_not_begun_again_nor_a_connection_opened_twice(
    stages: AsyncExitStack, tmp_path: Path
) -> None:
    address = await served(stages, folder=str(tmp_path))
    stage = await stage_at(stages, address)
    peer = (await stage.env.link()).peer  # type: ignore[union-attr]
    task = {"split": "train", "index": 0, "seed": 0}
    await peer.call("reset", episode=0, max_turns=0, task=task)
    for method in ("reset", "begin"):
        with pytest.raises(ConfigError, match="episode 0 is open already"):
            await peer.call(method, episode=0, max_turns=0, task=task)
    name = address.split("/", 3)[3]
    with pytest.raises(ConfigError, match="this connection has an environment already"):
        await peer.call("open", protocol=PROTOCOL, name=name, options={})
    await peer.call("close", episode=0)
    await peer.call("reset", episode=0, max_turns=0, task=task)
    await peer.call("close", episode=0)


async def test_another_version_of_the_protocol_is_refused(
    stages: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = await served(stages)
    monkeypatch.setattr("agentrl.hosting.link.PROTOCOL", 99)
    with pytest.raises(ConfigError, match=f"protocol 99 of the worker is not {PROTOCOL}"):
        await (await stage_at(stages, address)).env.facts()


@pytest.mark.parametrize(
    "address",
    [
        "agentrl://127.0.0.1/guess", "agentrl://guess", "agentrl://127.0.0.1:80", "agentrl://::1:80/guess",
        "agentrl://127.0.0.1:99999/guess", "agentrl://[::1/guess", "agentrls:///guess",
    ],
)  # fmt: skip
def test_an_address_without_all_its_parts_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="write agentrl://HOST:PORT/NAME"):
        environment(address, {})


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("agentrl://[::1]:80/owner/guess@1.2", "ws://[::1]:80"),
        ("agentrls://env.example/guess", "wss://env.example"),
        ("agentrls://env.example:8443/guess", "wss://env.example:8443"),
    ],
)
def test_an_address_with_tls_is_called_with_tls(address: str, url: str) -> None:
    parts = sockets.Address.parse(address)
    assert (parts.url, parts.name) == (url, address.partition("://")[2].partition("/")[2])


async def test_a_token_that_no_header_can_carry_is_refused(
    stages: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = await served(stages, token=SECRET)
    monkeypatch.setenv(TOKEN, "gehëim")
    with pytest.raises(ConfigError, match=f"{TOKEN} must be a token of printable ASCII"):
        await (await stage_at(stages, address)).env.facts()
    monkeypatch.setenv(TOKEN, f" {SECRET}\n")
    assert await (await stage_at(stages, address)).env.facts()


async def test_an_interpreter_beside_an_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="has the interpreter of its server"):
        environment("agentrl://127.0.0.1:80/guess", {}, Path(sys.executable))
    with pytest.raises(ConfigError, match="only runs can use it"):
        make_env("agentrl://127.0.0.1:80/guess")


async def test_a_proxy_whose_server_is_away_is_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses = [503, 502, 403]

    def refuse(connection: ServerConnection, request: Request) -> Response:
        return connection.respond(statuses.pop(0), "")

    async def never(_: ServerConnection) -> None:
        raise AssertionError

    monkeypatch.setattr(sockets, "PAUSE_S", 0.01)
    async with serve(never, "127.0.0.1", 0, process_request=refuse) as proxy:
        port = next(iter(proxy.sockets)).getsockname()[1]
        with pytest.raises(ConfigError, match="status 403"):
            await sockets.SocketConnection.open(f"agentrl://127.0.0.1:{port}/guess")
    assert not statuses


async def test_a_cancellation_that_arrives_with_its_call_is_answered_at_once(stages: AsyncExitStack) -> None:
    stage = await stage_at(stages, await served(stages))
    link = await stage.env.link()  # type: ignore[union-attr]
    calling = asyncio.ensure_future(link.peer.call("ping"))
    await asyncio.sleep(0)  # the call is sent, but not read
    calling.cancel()
    async with asyncio.timeout(CANCEL_S / 2):
        await asyncio.wait({calling})
    assert calling.cancelled()


async def test_a_server_that_is_away_is_waited_for(stages: AsyncExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    address = await served(stages)
    await stages.pop_all().aclose()
    monkeypatch.setattr(sockets, "PAUSE_S", 0.05)
    with pytest.raises(AgentRLError, match=r"cannot be reached.*agentrl env serve"):
        await sockets.SocketConnection.open(address, patience_s=0.2)


def test_an_environment_is_inspected_where_it_is_served(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SERVER, f"{FILE}:Chat"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout
    try:
        address = f"agentrl://127.0.0.1:{server.stdout.readline().strip()}/{FILE}:Chat"
        found = inspect_env(DryRunRequest(address, {}, ("train",)), None, has_reward_models=False)
    finally:
        server.send_signal(signal.SIGKILL)
        server.communicate()
    assert found.prompt.startswith("task 0")
    assert found.source().name == f"{FILE}:Chat"


SERVER = """
import asyncio, sys
from agentrl.hosting.sockets import EnvServer

async def main():
    async with EnvServer(sys.argv[1], {}).listening() as port:
        print(port, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_client_that_speaks_tls_leaves_nothing_in_the_output(caplog: pytest.LogCaptureFixture) -> None:
    incoming, hello = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, hello, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    async with asyncio.timeout(10), EnvServer(f"{FILE}:Chat", {}).listening() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(hello.read())
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []
