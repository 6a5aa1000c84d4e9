"""MCP servers: their tools are the model's, their errors are told apart, and no process outlives its episode."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agentrl_tools.errors import ServiceError
from agentrl_tools.mcp import McpServer
from agentrl_tools.mcp import connection as module
from agentrl_tools.mcp import server as toolset

from agentrl.cluster.ports import free_port
from agentrl.env import EnvDriver, Limits, Task, Tool
from agentrl.errors import AgentRLError, ConfigError, DeadlineError
from tests.unit.env.test_tools import calls
from tests.unit.tools.guest import Guest, guest_with, say

pytest.importorskip("mcp", reason="MCP servers need agentrl-core[mcp]")
HERE = Path(__file__).parent
PATIENCE_S = 120.0


def command(manner: str = "well") -> list[str]:
    return [sys.executable, str(HERE / "mcp_server.py"), manner]


def guest(server: McpServer | None = None, **limits: float) -> Guest:
    patient = {"setup_timeout_s": PATIENCE_S, "tool_timeout_s": PATIENCE_S}
    return guest_with(server or McpServer(command()), **(patient | limits))


def is_alive(pid: int) -> bool:
    """True unless the process is gone, or dead and waiting for its parent."""
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children() -> set[int]:
    """The processes that this one has started and that run."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(os.getpid())], capture_output=True, text=True, timeout=20)
    return {int(pid) for pid in found.stdout.split() if is_alive(int(pid))}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A busy machine starts a process late; no test ends with a process or a task left behind."""
    monkeypatch.setattr(module, "START_TIMEOUT_S", PATIENCE_S)
    before = children()
    yield
    assert children() - before == set()


@pytest.mark.timeout(PATIENCE_S)
async def test_its_tools_are_offered_with_their_schemas_and_answer() -> None:
    driver = EnvDriver(guest())
    start = await driver.reset(Task("t"))
    assert [spec["name"] for spec in start.tools][:9:4] == ["add", "environment", "nonsense"]
    assert start.tools[0]["parameters"]["required"] == ["a", "b"]
    assert await say(driver, "add", a=2, b=3) == "5"
    assert await say(driver, "add", self=1, tool=2, client=3) == "error: a and b must be integers"
    assert await say(driver, "fail") == "error: no luck"
    assert (await say(driver, "long"))[-30:].endswith("[80000 more characters]")
    assert "HOME" not in os.environ or "HOME" in await say(driver, "environment")
    assert "PYTEST_CURRENT_TEST" not in await say(driver, "environment")
    await driver.close()


async def test_only_the_named_tools_are_offered() -> None:
    driver = EnvDriver(guest(McpServer(command(), only=("pid", "add"), env={"EXTRA": "1"})))
    assert [spec["name"] for spec in (await driver.reset(Task("t"))).tools] == ["add", "pid"]
    await driver.close()
    with pytest.raises(ConfigError, match=r"unknown tool of .* 'ad'\. Did you mean 'add'"):
        await EnvDriver(guest(McpServer(command(), only=("ad",)))).reset(Task("t"))


@pytest.mark.timeout(PATIENCE_S)
async def test_a_server_that_dies_once_is_the_infrastructures_fault_and_says_its_last_words(tmp_path: Path) -> None:
    driver = EnvDriver(guest(McpServer(command(), env={"MARK": str(tmp_path / "mark")})))
    await driver.reset(Task("t"))
    with pytest.raises(ServiceError, match=r"is lost \(while it ran 'die_once'\): .*ended with code 3") as caught:
        await say(driver, "die_once")
    assert caught.value.fault == "infra"
    await driver.close()


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("name", ["die", "nonsense"])
async def test_a_call_that_breaks_every_fresh_server_is_the_models_and_the_episode_goes_on(name: str) -> None:
    driver = EnvDriver(guest())
    await driver.reset(Task("t"))
    for _ in range(toolset.MAX_BREAKS - 1):
        assert (await say(driver, name)).startswith(
            f"error: '{name}' crashed the server or got no response. The server was"
        )
        assert await say(driver, "add", a=2, b=3) == "5"
    assert (await say(driver, name)).endswith("It will not be restarted.")
    assert await say(driver, "add", a=2, b=3) == "error: the server is gone: calls of this episode broke it 3 times"
    await driver.close()


@pytest.mark.timeout(PATIENCE_S)
async def test_calls_that_break_a_server_together_are_made_again_together() -> None:
    driver = EnvDriver(guest())
    await driver.reset(Task("t"))
    assert await say(driver, "fire") == "click"
    assert await say(driver, "arm") == "armed"
    assert (await say(driver, "fire")).startswith("error: 'fire' crashed the server")
    assert await say(driver, "fire") == "click"
    await driver.close()


@pytest.mark.timeout(PATIENCE_S)
async def test_a_server_that_no_longer_starts_is_the_infrastructures_fault() -> None:
    server = McpServer(command())
    driver = EnvDriver(guest(server))
    await driver.reset(Task("t"))
    server.command = ["/no/such/server"]
    with pytest.raises(ServiceError, match=r"is lost \(while it ran 'die'\): .*out of memory"):
        await say(driver, "die")
    await driver.close()


async def test_a_call_that_hangs_every_fresh_server_is_the_models() -> None:
    driver = EnvDriver(guest(tool_timeout_s=0.3))
    await driver.reset(Task("t"))
    assert (await say(driver, "hang")).startswith("error: 'hang' crashed the server or got no response")
    await driver.close()


async def test_a_call_that_outlasts_its_deadline_is_the_models_though_it_would_end() -> None:
    """Made again it has no more time, so being slow is no way out of an episode."""
    driver = EnvDriver(guest(tool_timeout_s=0.3))
    await driver.reset(Task("t"))
    assert (await say(driver, "nap")).startswith("error: 'nap' crashed the server or got no response")
    await driver.close()


async def test_a_call_that_is_nearly_as_long_as_its_deadline_is_the_models_though_it_once_ends_in_time(
    tmp_path: Path,
) -> None:
    driver = EnvDriver(guest(McpServer(command(), env={"MARK": str(tmp_path / "mark")}), tool_timeout_s=2.0))
    await driver.reset(Task("t"))
    assert (await say(driver, "tired")).startswith("error: 'tired' crashed the server or got no response")
    await driver.close()


@pytest.mark.timeout(PATIENCE_S)
async def test_calls_too_long_to_be_made_again_are_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = EnvDriver(guest())
    await driver.reset(Task("t"))
    assert await say(driver, "add", a=2, b=3) == "5"
    monkeypatch.setattr(toolset, "REPLAY_S", 0.0)
    assert (await say(driver, "die")).startswith("error: 'die' crashed the server or got no response")
    await driver.close()


@pytest.mark.timeout(PATIENCE_S)
async def test_calls_too_many_to_be_made_again_are_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a call that needs one of long ago to break the server would be a way out."""
    monkeypatch.setattr(toolset, "MAX_CALLS", 2)
    driver = EnvDriver(guest())
    await driver.reset(Task("t"))
    assert await say(driver, "arm") == "armed"
    assert await say(driver, "add", a=2, b=3) == "5"
    assert await say(driver, "add", a=2, b=3) == "5"
    assert (await say(driver, "fire")).startswith("error: 'fire' crashed the server or got no response")
    await driver.close()


async def test_a_server_that_hangs_for_another_reason_is_the_infrastructures_fault() -> None:
    server = McpServer(command())
    driver = EnvDriver(guest(server, tool_timeout_s=0.3))
    await driver.reset(Task("t"))
    server.command = ["/no/such/server"]
    with pytest.raises(DeadlineError, match=r"Guest\.hang ran longer than 0\.3 s") as caught:
        await say(driver, "hang")
    assert caught.value.fault == "infra"
    await driver.close()


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"x": "\ud800"}, "half of a surrogate pair"),
        ({"\ud800": 1}, "half of a surrogate pair"),
        ('{"x": "\\ud800"}', "half of a surrogate pair"),
        ('{"x": 1e999}', "NaN or an infinite number"),
        ('{"x": NaN}', "NaN or an infinite number"),
        ('{"x": ' + "[" * 200 + "]" * 200 + "}", "nested deeper than 64 levels"),
        ('{"x": "' + "y" * (1 << 20) + '"}', "longer than 1048576 characters"),
        ('{"x": ' + "1" * 5000 + "}", "not valid JSON"),
    ],
)
async def test_arguments_that_cannot_be_sent_are_the_models_error_at_once(arguments: Any, expected: str) -> None:
    driver = EnvDriver(guest())
    await driver.reset(Task("t"))
    (message,) = (await driver.step(calls(("echo", arguments)))).messages
    assert str(message["content"]).startswith("error: the arguments ")
    assert expected in message["content"]
    assert await say(driver, "echo", x="\0 \U0001f4a9 \u0301", y=10**4000) != ""
    await driver.close()


@pytest.mark.timeout(PATIENCE_S)
async def test_a_message_that_cannot_be_written_ends_the_session_instead_of_hanging_the_call() -> None:
    session = module.Connection(module.Address("test", command=command()))
    await session.open()
    with pytest.raises(ServiceError, match="is lost"):
        await session.call("echo", {"x": "\ud800"})
    await session.close()


async def test_an_answer_beyond_all_bounds_is_the_calls_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentrl_tools.mcp.process.LONGEST_LINE", 1 << 16)
    session = module.Connection(module.Address("test", command=command()))
    await session.open()
    with pytest.raises(ServiceError, match="a line of more than 0 MiB on its stdout"):
        await session.call("long", {})
    await session.close()
    driver = EnvDriver(guest())
    await driver.reset(Task("t"))
    assert (await say(driver, "long")).startswith("error: 'long' crashed the server")
    await driver.close()


async def test_an_answer_of_too_many_values_is_the_calls_fault_and_is_not_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To read a message takes the loop a microsecond for each value, so they are counted first; text costs nothing."""
    from agentrl_tools.mcp import process

    read, plain = list[int](), process.as_message
    monkeypatch.setattr(process, "as_message", lambda line: read.append(len(line)) or plain(line))
    driver = EnvDriver(guest())
    await driver.reset(Task("t"))
    assert (await say(driver, "table")).startswith('",[{\\' * 1000)
    assert max(read) > 400_000
    assert (await say(driver, "many")).startswith("error: 'many' crashed the server")
    assert not [size for size in read if 200_000 < size < 400_000]
    await driver.close()


async def test_an_answer_is_not_checked_by_the_schema_that_its_server_promises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That takes the loop the square of their number, or for ever; and what does not fit is an answer all the same."""
    compared = list[object]()

    def equal(one: object, two: object) -> bool:
        compared.append(one)
        return one == two

    for place in ("jsonschema._utils.equal", "jsonschema._keywords.equal"):
        monkeypatch.setattr(place, equal)
    driver = EnvDriver(guest())
    await driver.reset(Task("t"))
    assert await say(driver, "twins") == "different"
    assert compared == []
    assert await say(driver, "untold") == "plain"
    assert await say(driver, "untold", wrong=1) == "plain"
    await driver.close()


@pytest.mark.parametrize("end", ["", "\r"])
async def test_a_server_may_write_to_stderr_without_end(end: str) -> None:
    driver = EnvDriver(guest())
    await driver.reset(Task("t"))
    pid = await say(driver, "pid")
    assert await say(driver, "progress", end=end) == "done"
    assert await say(driver, "pid") == pid
    await driver.close()


async def test_the_last_words_are_lines_whatever_ends_them() -> None:
    from agentrl_tools.mcp import process

    script = "import sys; sys.stderr.write('x' * 5_000_000 + '\\rone\\r\\n\\ntwo\\rthree'); sys.exit(4)"
    server = await process.ServerProcess.start([sys.executable, "-c", script], {}, None)
    await server.read_stderr()
    assert (await server.exit_summary()) == f" (it ended with code 4: {'x' * 300}; one; two; three)"
    await server.end()


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (["/no/such/server"], "cannot be started: .*No such file"),
        ([sys.executable, "-c", "import sys; sys.exit('no licence')"], "did not start: .*no licence"),
        (command("junk"), "did not start.*no JSON-RPC on its stdout: this is no JSON-RPC"),
    ],
)
async def test_a_server_that_does_not_start_says_why(server: list[str], expected: str) -> None:
    driver = EnvDriver(guest(McpServer(server)))
    with pytest.raises(ServiceError, match=expected) as caught:
        await driver.reset(Task("t"))
    assert caught.value.fault == "infra"
    await driver.close()


async def test_a_server_that_never_answers_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    await asyncio.to_thread(module.load)
    monkeypatch.setattr(module, "START_TIMEOUT_S", 0.5)
    driver = EnvDriver(guest(McpServer(command("silent"))))
    with pytest.raises(ServiceError, match=r"did not answer within 0\.5 s"):
        await driver.reset(Task("t"))
    await driver.close()


async def test_the_process_and_its_children_end_with_the_episode() -> None:
    driver = EnvDriver(guest())
    await driver.reset(Task("t"))
    pids = [int(await say(driver, "pid")), int(await say(driver, "spawn"))]
    assert all(map(is_alive, pids))
    watched = [os.pidfd_open(pid) for pid in pids if is_alive(pid)]
    await driver.close()
    await driver.close()
    assert all(select.select([handle], [], [], 20)[0] for handle in watched)
    for handle in watched:
        os.close(handle)


async def test_a_server_that_ignores_its_end_is_killed_and_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentrl_tools.mcp import process

    monkeypatch.setattr(process, "GRACE_S", 0.0)
    server = await process.ServerProcess.start(command("silent"), {}, None)
    await server.end()
    assert server.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("stage", ["start", "open", "call", "close"])
async def test_an_episode_cancelled_at_any_stage_leaves_no_process(stage: str) -> None:
    await asyncio.to_thread(module.load)
    env = guest(McpServer(command("silent" if stage == "start" else "well")))
    driver = EnvDriver(env)
    reached = asyncio.Event()

    async def play() -> None:
        try:
            if stage == "start":
                reached.set()
            await driver.reset(Task("t"))
            if stage != "close":
                asyncio.get_running_loop().call_soon(reached.set)
                await (say(driver, "hang") if stage == "call" else asyncio.Event().wait())
        finally:
            reached.set()
            await driver.close()

    episode = asyncio.create_task(play())
    await reached.wait()
    while stage == "start" and not any(one._process for one in env.toolset._opened):  # noqa: ASYNC110 (nobody announces it)
        await asyncio.sleep(0.01)
    episode.cancel()
    with pytest.raises(asyncio.CancelledError):
        await episode
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not others or not (await asyncio.wait(others, timeout=10))[1]


@pytest.mark.timeout(300)
async def test_many_episodes_have_a_server_each() -> None:
    async def play(number: int) -> int:
        driver = EnvDriver(guest(McpServer(command(), only=("add", "pid"))))
        try:
            await driver.reset(Task("t"), member=number)
            assert await say(driver, "add", a=number, b=1) == str(number + 1)
            return int(await say(driver, "pid"))
        finally:
            await driver.close()

    assert len(set(await asyncio.gather(*map(play, range(8))))) == 8


def test_a_server_needs_a_command_or_a_url() -> None:
    assert McpServer("uvx 'my server' --flag").command == ["uvx", "my server", "--flag"]
    assert McpServer("http://127.0.0.1:1/mcp").url
    with pytest.raises(ConfigError, match="pass a command or a URL"):
        McpServer("")


# --- the SDK's own servers --------------------------------------------------------------------------------------


@pytest.mark.real
async def test_a_server_of_the_sdk_answers_over_stdio() -> None:
    driver = EnvDriver(guest(McpServer([sys.executable, str(HERE / "sdk_server.py")])))
    await driver.reset(Task("t"))
    assert await say(driver, "add", a=2, b=3) == "5"
    assert "error: " in await say(driver, "add", a="x")
    await driver.close()


@pytest.mark.real
async def test_a_server_of_the_sdk_answers_over_http_and_its_death_is_the_infrastructures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(HERE / "sdk_server.py"), str(port), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await listening(port)
        env = guest(McpServer(f"http://127.0.0.1:{port}/mcp"))
        driver = EnvDriver(env)
        await driver.reset(Task("t"))
        assert [spec["name"] for spec in (await driver.reset(Task("t"))).tools] == ["add", "hang", "die"]
        assert await say(driver, "add", a=2, b=3) == "5"
        env.limits = Limits(max_turns=50, tool_timeout_s=0.3)
        assert (await say(driver, "hang")).startswith("error: 'hang' crashed the server or got no response")
        env.limits = Limits(max_turns=50)
        monkeypatch.setattr(toolset, "BUSY_S", 0.0)
        with pytest.raises(AgentRLError) as caught:
            await say(driver, "die")
        assert caught.value.fault == "infra"
        await driver.close()
        with pytest.raises(ServiceError, match="did not start"):
            await EnvDriver(guest(McpServer(f"http://127.0.0.1:{port}/mcp"))).reset(Task("t"))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def listening(port: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                await writer.wait_closed()
                return


def test_what_a_server_offers_is_a_tool_whose_silence_is_infrastructure() -> None:
    server = McpServer(command())
    (tool,) = server._chosen([{"name": "x", "description": "", "parameters": {}}])
    assert isinstance(tool, Tool)
    assert tool.silence == "infra"
