"""Code that a model wrote runs in its episode's own sandbox; what fails is told apart, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from agentrl_sandbox import (
    ClosedError,
    ExecResult,
    FullError,
    Limit,
    Limits,
    LostError,
    Pool,
    UnavailableError,
    choose,
    leases,
)
from agentrl_sandbox.ordered import OrderedSandbox
from agentrl_tools import Workspace, close_sandboxes, sandboxes, split_names, toolsets
from agentrl_tools.workspace import pools, workspace
from agentrl_tools.workspace.shown import cut, shown

from agentrl.env import EnvDriver, Task
from agentrl.env import Limits as EnvLimits
from agentrl.errors import ConfigError, DeadlineError
from tests.unit.tools.guest import Guest, guest_with, say

pytestmark = [
    pytest.mark.filterwarnings("ignore:sandbox backend 'process'"),
    pytest.mark.timeout(120),
]
QUICK = Limits(wall_s=1.0, cpu_s=5.0, memory_bytes=256 << 20)
PATIENT = Limits(wall_s=50.0, cpu_s=100.0)


@pytest.fixture(scope="module", autouse=True)
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Leases of these tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(leases.VARIABLE, str(tmp_path_factory.mktemp("leases")))
        yield


@pytest.fixture(autouse=True)
async def nothing_is_left(registry: None) -> AsyncIterator[None]:
    yield
    held = [pool.count for pool in pools.own_pools().pools.values() if pool.count.leased or pool.count.waiting]
    await close_sandboxes()
    assert held == []
    assert list(leases.recorded()) == []


@pytest.fixture(params=["bubblewrap", "process"])
def backend(request: pytest.FixtureRequest) -> str:
    try:
        choose(request.param)
    except UnavailableError as error:
        pytest.skip(str(error))
    return str(request.param)


@pytest.fixture(params=["bubblewrap", "docker"])
def walled(request: pytest.FixtureRequest) -> str:
    try:
        choose(request.param)
    except (UnavailableError, ImportError) as error:
        pytest.skip(str(error))
    return str(request.param)


def guest(*kinds: str, backend: str = "process", limits: Limits = PATIENT, tool_timeout_s: float = 60.0) -> Guest:
    workspace = Workspace(*(kinds or ("python",)), backend=backend, limits=limits)
    return guest_with(workspace, tool_timeout_s=tool_timeout_s)


def leased() -> int:
    return sum(pool.count.leased for pool in pools.own_pools().pools.values())


def only_pool() -> Pool:
    (pool,) = pools.own_pools().pools.values()
    return pool


async def test_variables_live_on_and_a_last_expression_is_shown(backend: str) -> None:
    driver = EnvDriver(guest(backend=backend))
    start = await driver.reset(Task("t"))
    assert [spec["name"] for spec in start.tools] == ["python"]
    assert start.tools[0]["parameters"]["required"] == ["code"]
    assert await say(driver, "python", code="x = 6") == "[no output]"
    assert await say(driver, "python", code="print('here')\nx * 7") == "here\n42"
    assert (await say(driver, "python", code="1 / 0")).splitlines() == [
        "Traceback (most recent call last):",
        '  File "<program>", line 1, in <module>',
        "ZeroDivisionError: division by zero",
    ]
    assert await say(driver, "python", code="import sys; sys.exit(3)") == "[exit code 3]"
    assert (await say(driver, "python", code="'\x00")).startswith("SyntaxError")
    assert await say(driver, "python") == "error: code: Field required"
    assert await say(driver, "python", code="x") == "6"
    await driver.close()


async def test_the_tools_of_an_episode_share_a_sandbox_and_episodes_do_not(backend: str) -> None:
    driver, other = (
        EnvDriver(guest("python", "shell", "files", backend=backend)),
        EnvDriver(guest("files", backend=backend)),
    )
    await driver.reset(Task("t"))
    await other.reset(Task("t"))
    assert await say(driver, "write_file", path="in/a.txt", text="4 5") == "3 bytes written"
    assert await say(driver, "shell", command="cat in/a.txt; echo; echo bad >&2; exit 2") == "4 5\nbad\n[exit code 2]"
    assert await say(driver, "python", code="open('out', 'w').write('done')") == "4"
    assert await say(driver, "list_files") == "in/\nout (4 bytes)"
    assert await say(driver, "list_files", path="in") == "a.txt (3 bytes)"
    assert await say(driver, "read_file", path="out") == "done"
    assert leased() == 1
    assert await say(other, "list_files") == "[the folder is empty]"
    assert leased() == 2
    await driver.close()
    await other.close()


async def test_what_files_refuse_is_told_to_the_model() -> None:
    driver = EnvDriver(guest("files", "shell"))
    await driver.reset(Task("t"))
    assert "No such file" in await say(driver, "read_file", path="none")
    assert "not a path inside the working folder" in await say(driver, "read_file", path="../../etc/passwd")
    assert (await say(driver, "write_file", path="/etc/x", text="")).startswith("error: cannot write '/etc/x'")
    assert "No such file" in await say(driver, "list_files", path="none")
    await say(driver, "write_file", path="a", text="one two two")
    assert await say(driver, "edit_file", path="a", old="one", new="") == "edited"
    assert (
        await say(driver, "edit_file", path="a", old="two", new="")
        == "error: `old` occurs 2 times in a; it must occur once"
    )
    assert await say(driver, "edit_file", path="a", old="", new="x") == "error: `old` is empty"
    assert await say(driver, "read_file", path="a") == " two two"
    await say(driver, "write_file", path="a", text="")
    assert await say(driver, "read_file", path="a") == "[the file is empty]"
    await say(driver, "write_file", path="a", text="1\n2\n3\n")
    assert await say(driver, "read_file", path="a", first=2) == "2\n3\n"
    assert await say(driver, "read_file", path="a", first=2, last=2) == "2\n"
    assert await say(driver, "read_file", path="a", first=4) == "[the file has 3 lines]"
    await say(driver, "shell", command="head -c 1048577 /dev/zero > a")
    assert await say(driver, "read_file", path="a") == "error: cannot read 'a': it has more than 1048576 bytes"
    await driver.close()


async def test_a_call_that_hangs_is_stopped_and_the_episode_goes_on(backend: str) -> None:
    driver = EnvDriver(guest("python", "shell", backend=backend, limits=QUICK))
    await driver.reset(Task("t"))
    await say(driver, "python", code="x = 1")
    assert (await say(driver, "python", code="while True: pass")).endswith("[stopped after 1 s; variables are kept]")
    assert await say(driver, "python", code="x") == "1"
    assert await say(driver, "shell", command="while :; do :; done") == "[stopped after 1 s]"
    assert await say(driver, "python", code="import os; os._exit(4)") == (
        "[exit code 4; the session and its variables are lost; files are kept]"
    )
    assert "NameError" in await say(driver, "python", code="x")
    await driver.close()


async def test_limits_are_told_in_words(backend: str) -> None:
    limits = Limits(wall_s=30, cpu_s=60, output_bytes=1 << 20, memory_bytes=128 << 20)
    driver = EnvDriver(guest("python", "shell", backend=backend, limits=limits))
    await driver.reset(Task("t"))
    text = await say(driver, "python", code="while True: print('x' * 10_000)")
    assert "[stopped: it wrote more than 1 MiB; the session and its variables are lost; files are kept]" in text
    assert len(text) < workspace.MAX_CHARACTERS + 200
    filled = await say(driver, "python", code="b = bytearray(1 << 30)")
    assert "MemoryError" in filled or "[out of memory, the limit is 128 MiB" in filled
    assert await say(driver, "python", code="7") == "7"
    await driver.close()


async def test_a_program_that_takes_its_sandbox_along_gets_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    env = guest()
    driver = EnvDriver(env)
    await driver.reset(Task("t"))
    await say(driver, "python", code="x = 1")
    first = env.toolset._sandbox
    assert first is not None
    killed = ExecResult(-9, b"", b"", frozenset({Limit.MEMORY}), 0.1, 0.0, 0, is_state_lost=True)

    async def run(source: str) -> ExecResult:
        first.kill()
        return killed

    monkeypatch.setattr(first, "run", run)
    text = await say(driver, "python", code="x")
    assert text == "[out of memory, the limit is 512 MiB; all variables and files are lost]"
    assert leased() == 0
    assert "NameError" in await say(driver, "python", code="x")
    await driver.close()


# --- what is not the model's fault ------------------------------------------------------------------------------


async def test_a_sandbox_that_dies_is_the_infrastructures_fault() -> None:
    env = guest()
    driver = EnvDriver(env)
    await driver.reset(Task("t"))
    await say(driver, "python", code="x = 1")
    assert env.toolset._sandbox
    leases.kill_marked({env.toolset._sandbox.id}, 10)
    with pytest.raises(Exception, match="closed its channel") as caught:
        await say(driver, "python", code="x")
    assert getattr(caught.value, "fault", "") == "infra"
    await driver.close()


def breaking(monkeypatch: pytest.MonkeyPatch, times: int = 99) -> list[str]:
    """Sandboxes break of the cell `broken` where `armed` has run; the ids of those that did."""
    plain, armed, broken = OrderedSandbox.run, set[str](), list[str]()

    async def run(self: OrderedSandbox, source: str, *args: Any, **kwargs: Any) -> ExecResult:
        if source == "armed":
            armed.add(self.id)
        elif source == "broken" and self.id in armed and len(broken) < times:
            broken.append(self.id)
            self.kill()
        return await plain(self, "1" if source in ("armed", "broken") else source, *args, **kwargs)

    monkeypatch.setattr(OrderedSandbox, "run", run)
    monkeypatch.setattr(OrderedSandbox, "order", as_lost(OrderedSandbox.order))
    return broken


def as_lost(order: Any) -> Any:
    """The call, which a sandbox that was killed in its midst answers with LostError."""

    async def answered(self: OrderedSandbox, *args: Any) -> ExecResult:
        if self._state == "killed":
            raise LostError("the sandbox closed its channel")
        result: ExecResult = await order(self, *args)
        return result

    return answered


async def test_calls_that_break_a_second_sandbox_too_are_told_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = breaking(monkeypatch)
    driver = EnvDriver(guest("python", "files"))
    await driver.reset(Task("t"))
    await say(driver, "python", code="x = 1")
    assert "No such file" in await say(driver, "read_file", path="none")  # refused once more in the second sandbox
    assert await say(driver, "python", code="armed") == "1"
    assert await say(driver, "python", code="broken") == f"error: {workspace.BROKEN}"
    assert len(set(broken)) == 2
    assert leased() == 0
    assert "NameError" in await say(driver, "python", code="x")
    assert await say(driver, "python", code="broken") == "1"  # without what went before it breaks nothing
    await driver.close()


async def test_calls_that_break_no_second_sandbox_met_an_accident(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = breaking(monkeypatch, times=1)
    driver = EnvDriver(guest())
    await driver.reset(Task("t"))
    await say(driver, "python", code="armed")
    with pytest.raises(LostError) as lost:
        await say(driver, "python", code="broken")
    assert lost.value.fault == "infra"
    assert len(broken) == 1
    assert leased() == 0
    await driver.close()


async def test_a_backend_that_dies_with_the_second_sandbox_is_the_infrastructures_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = breaking(monkeypatch)
    driver = EnvDriver(guest())
    await driver.reset(Task("t"))
    await say(driver, "python", code="armed")
    served = OrderedSandbox.exec

    async def probed(self: OrderedSandbox, *args: Any, **kwargs: Any) -> ExecResult:
        if len(broken) == 2:
            raise LostError("no engine answers")
        return await served(self, *args, **kwargs)

    monkeypatch.setattr(OrderedSandbox, "exec", probed)
    with pytest.raises(LostError) as lost:
        await say(driver, "python", code="broken")
    assert lost.value.fault == "infra"
    await driver.close()


async def test_calls_at_once_share_the_sandbox_of_their_episode() -> None:
    driver = EnvDriver(guest("python", "shell"))
    start = await driver.reset(Task("t"))
    assert start.tools
    tools = driver.ctx.tools
    code = [tools["python"].run(code="6 * 7"), tools["shell"].run(command="echo 42"), tools["python"].run(code="42")]
    assert await asyncio.gather(*code) == ["42", "42", "42"]
    assert leased() == 1
    await driver.close()


RUINOUS = """
import os
work = os.getcwd()
for _ in range(6):
    if os.fork() == 0:
        for fd in range(3, 9):
            try: os.close(fd)
            except OSError: pass
        while True: os.chmod(work, 0); os.chmod(work, 0o755)
"""


async def test_an_episode_goes_on_with_a_working_folder_that_is_ruined_for_ever(walled: str) -> None:
    driver = EnvDriver(guest("python", "shell", "files", backend=walled))
    await driver.reset(Task("t"))
    assert await say(driver, "python", code=RUINOUS) == "[no output]"
    for _ in range(6):
        assert "42" in await say(driver, "python", code="6 * 7")
        for name, arguments in (
            ("shell", {"command": "echo done"}),
            ("write_file", {"path": "f", "text": "done"}),
            ("read_file", {"path": "f"}),
            ("list_files", {}),
        ):
            text = await say(driver, name, **arguments)
            assert any(words in text for words in ("done", "bytes", "denied", "No such file", "is empty")), text
    await driver.close()


@pytest.mark.parametrize("name", ["VmHWM: x", "a) S VmHWM:", "\\xff\\nVmHWM: x"])
async def test_an_episode_whose_session_has_an_odd_name_goes_on(walled: str, name: str) -> None:
    driver = EnvDriver(guest("python", "shell", backend=walled))
    await driver.reset(Task("t"))
    await say(driver, "python", code=f"_ = open('/proc/self/comm', 'wb').write('{name}'.encode('latin-1'))")
    assert await say(driver, "python", code="6 * 7") == "42"
    assert await say(driver, "shell", command="echo done") == "done"
    await driver.close()


async def test_no_sandbox_in_time_is_the_infrastructures_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "most", lambda: 1)
    first, second = EnvDriver(guest()), EnvDriver(guest())
    await first.reset(Task("t"))
    await second.reset(Task("t"))
    await say(first, "python", code="1")
    monkeypatch.setattr(workspace, "WAIT_S", 0.1)
    with pytest.raises(FullError) as full:
        await say(second, "python", code="1")
    assert full.value.fault == "infra"
    await first.close()
    await second.close()


async def test_a_call_that_never_ends_within_the_environments_deadline_is_told_to_the_model() -> None:
    driver = EnvDriver(guest(tool_timeout_s=2.0))
    await driver.reset(Task("t"))
    await say(driver, "python", code="x = 1")
    assert await say(driver, "python", code="while True: pass") == f"error: {workspace.BROKEN}"
    assert leased() == 0
    assert "NameError" in await say(driver, "python", code="x")
    await driver.close()


async def test_a_call_past_the_deadline_has_no_more_time_when_it_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a second sandbox that is faster nor earlier calls that were slower give it more."""
    env, plain, slow = guest(tool_timeout_s=60.0), OrderedSandbox.run, list[str]()
    driver = EnvDriver(env)
    await driver.reset(Task("t"))

    async def run(self: OrderedSandbox, source: str, *args: Any, **kwargs: Any) -> ExecResult:
        if source == "x = 1" and not slow:
            slow.append(self.id)
            await asyncio.sleep(5)  # the service is slow, this once
        return await plain(self, source, *args, **kwargs)

    monkeypatch.setattr(OrderedSandbox, "run", run)
    await say(driver, "python", code="x = 1")
    env.limits = EnvLimits(max_turns=50, tool_timeout_s=0.3)
    assert await say(driver, "python", code="import time; time.sleep(2)") == f"error: {workspace.BROKEN}"
    await driver.close()


async def test_a_sandbox_that_hangs_is_the_infrastructures_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, plain, hung = EnvDriver(guest(tool_timeout_s=2.0)), OrderedSandbox.run, list[str]()
    await driver.reset(Task("t"))
    await say(driver, "python", code="x = 1")

    async def run(self: OrderedSandbox, source: str, *args: Any, **kwargs: Any) -> ExecResult:
        if source == "x" and not hung:
            hung.append(self.id)
            await asyncio.Event().wait()
        return await plain(self, source, *args, **kwargs)

    monkeypatch.setattr(OrderedSandbox, "run", run)
    with pytest.raises(DeadlineError, match="ran longer than 2 s") as late:
        await say(driver, "python", code="x")
    assert late.value.fault == "infra"
    assert len(hung) == 1
    await driver.close()


async def test_a_wait_for_a_sandbox_past_the_deadline_is_the_infrastructures_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pools, "most", lambda: 1)
    first, second = EnvDriver(guest()), EnvDriver(guest(tool_timeout_s=0.5))
    await first.reset(Task("t"))
    await second.reset(Task("t"))
    await say(first, "python", code="1")
    with pytest.raises(DeadlineError) as late:
        await say(second, "python", code="while True: pass")
    assert late.value.fault == "infra"
    await first.close()
    await second.close()


async def test_a_pool_that_was_closed_is_the_infrastructures_fault() -> None:
    driver = EnvDriver(guest())
    await driver.reset(Task("t"))
    await say(driver, "python", code="1")
    await close_sandboxes()
    with pytest.raises(ClosedError) as closed:
        await say(driver, "python", code="1")
    assert closed.value.fault == "infra"
    await driver.close()


# --- leases -----------------------------------------------------------------------------------------------------


async def test_an_episode_without_a_call_takes_no_sandbox() -> None:
    driver = EnvDriver(guest("python", "files"))
    await driver.reset(Task("t"))
    await driver.step("I need nothing.")
    assert pools.own_pools().pools == {}
    await driver.close()


async def test_a_sandbox_goes_back_with_its_episode(backend: str) -> None:
    env = guest("shell", backend=backend)
    driver = EnvDriver(env)
    await driver.reset(Task("t"))
    await say(driver, "shell", command="echo")
    sandbox = env.toolset._sandbox
    assert sandbox
    assert leased() == 1
    await driver.close()
    await driver.close()
    assert leased() == 0
    assert not sandbox.is_healthy()


@pytest.mark.parametrize("stage", ["open", "make", "queue", "start", "call", "write", "idle", "close"])
async def test_an_episode_cancelled_at_any_stage_gives_its_sandbox_back(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "most", lambda: 1)
    driver, other = EnvDriver(guest("python", "files")), EnvDriver(guest())
    reached, released = asyncio.Event(), threading.Event()
    if stage == "make":

        def slow(*args: Any, **kwargs: Any) -> Pool:
            released.wait(20)
            return Pool(*args, **kwargs)

        monkeypatch.setattr("agentrl_sandbox.Pool", slow)
    if stage == "queue":
        await other.reset(Task("t"))
        await say(other, "python", code="1")

    async def play() -> None:
        try:
            await driver.reset(Task("t"))
            if stage == "open":
                reached.set()
                await asyncio.Event().wait()
            if stage in ("call", "idle", "close", "write"):
                await say(driver, "python", code="1")
            if stage == "idle":
                reached.set()
                await asyncio.Event().wait()
            if stage == "write":
                asyncio.get_running_loop().call_soon(reached.set)
                await say(driver, "write_file", path="a", text="x" * (1 << 22))
            if stage != "close":
                code = "import time; time.sleep(50)"
                asyncio.get_running_loop().call_later(0.3 if stage == "call" else 0.01, reached.set)
                await say(driver, "python", code=code)
        finally:
            if stage == "close":
                asyncio.get_running_loop().call_soon(reached.set)
            await driver.close()

    episode = asyncio.create_task(play())
    await reached.wait()
    while stage == "queue" and not only_pool().count.waiting:  # noqa: ASYNC110 (a pool offers no more than its count)
        await asyncio.sleep(0.01)
    episode.cancel()
    released.set()
    with pytest.raises(asyncio.CancelledError):
        await episode
    await other.close()
    assert leased() == 0


def test_every_thread_with_an_event_loop_has_its_own_sandboxes() -> None:
    outputs: list[str] = []

    async def play() -> None:
        async with sandboxes():
            for _ in range(3):
                driver = EnvDriver(guest())
                await driver.reset(Task("t"))
                outputs.append(await say(driver, "python", code="6 * 7"))
                await driver.close()
            assert only_pool().count.served == 3

    threads = [threading.Thread(target=asyncio.run, args=(play(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == ["42"] * 9
    assert list(leases.recorded()) == []


async def test_episodes_of_a_loop_share_a_pool() -> None:
    async def play() -> None:
        driver = EnvDriver(guest())
        await driver.reset(Task("t"))
        assert await say(driver, "python", code="6 * 7") == "42"
        await driver.close()

    await asyncio.gather(*(play() for _ in range(6)))
    assert only_pool().count.served == 6


async def test_the_last_holder_closes_the_sandboxes() -> None:
    async with sandboxes():
        async with sandboxes():
            driver = EnvDriver(guest())
            await driver.reset(Task("t"))
            await say(driver, "python", code="1")
            await driver.close()
        assert len(pools.own_pools().pools) == 1
    assert pools.own_pools().pools == {}
    assert list(leases.recorded()) == []


FORGETFUL = """
import asyncio, warnings
warnings.simplefilter("ignore")
from agentrl_tools import Workspace
async def main():
    tool, = await Workspace("python", backend="process").__aenter__()
    print(await tool.run(code="6 * 7"))
asyncio.run(main())
"""


def test_the_sandboxes_of_a_loop_that_has_ended_are_ended_by_the_next() -> None:
    async def use() -> int:
        async with Workspace("python", backend="process") as (python,):
            assert await python.run(code="6 * 7") == "42"
        await asyncio.gather(*pools.own_pools().closing)
        return sum(each.count.ready + each.count.starting for each in pools.own_pools().pools.values())

    for _ in range(4):
        most = asyncio.run(use())
        assert len(list(leases.recorded())) <= most + 1


def test_a_process_that_forgets_its_tools_leaves_nothing(tmp_path: Path) -> None:
    environment = os.environ | {leases.VARIABLE: str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", FORGETFUL], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert (run.stdout, run.stderr) == ("42\n", "")
    assert [path for path in tmp_path.rglob("*") if path.name not in ("work", f"agentrl-sandbox-{os.getuid()}")] == []


# --- names ------------------------------------------------------------------------------------------------------


def test_names_that_run_code_make_one_workspace() -> None:
    (made, calculator) = toolsets(["python:process", "calculator", "files"])
    assert isinstance(made, Workspace)
    assert (made.kinds, made.backend) == (("python", "files"), "process")
    assert type(calculator).__name__ == "Calculator"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (
            ["pyhton"],
            r"unknown tool 'pyhton'\. Did you mean 'python'\? Known: calculator, files, http, mcp, python, shell",
        ),
        (["python:procces"], r"tools that run code need a sandbox: unknown .*'procces'\. Did you mean 'process'"),
        (["python:"], r"unknown sandbox backend ''"),
        (["python:process", "shell:docker"], "they share one sandbox; name one backend"),
        (["shell:process", "shell"], "name at least one of python, shell, files, each at most once"),
    ],
)
def test_a_wrong_name_is_explained(names: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        toolsets(names)


def test_a_missing_backend_is_refused_by_name_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, packages: object) -> None:
        raise UnavailableError("no sandbox backend works here. Install bubblewrap")

    pools.backend.cache_clear()
    monkeypatch.setattr("agentrl_sandbox.choose", refuse)
    with pytest.raises(ConfigError, match=r"tools that run code need a sandbox: .* Install bubblewrap"):
        toolsets(["python"])


def test_a_workspace_offers_something() -> None:
    with pytest.raises(ConfigError, match="name at least one of"):
        Workspace(backend="process")
    with pytest.raises(ConfigError, match=r"unknown tool of a Workspace 'pyton'\. Did you mean 'python'"):
        Workspace("pyton", backend="process")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("python", ["python"]),
        ("python, shell,files", ["python", "shell", "files"]),
        ("http:a.com,b.com,python", ["http:a.com,b.com", "python"]),
        ("mcp:uvx a,b", ["mcp:uvx a,b"]),
        ("python,shel", ["python", "shel"]),
        ("", []),
    ],
)
def test_names_stand_between_commas(text: str, names: list[str]) -> None:
    assert split_names(text) == names


def test_importing_the_tools_loads_no_sandbox() -> None:
    code = "import sys, agentrl_tools; sys.exit('agentrl_sandbox' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- what is shown ----------------------------------------------------------------------------------------------


def test_a_long_text_keeps_its_head_and_tail() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("abcdef", 3) == "a\n[3 characters are not shown]\nef"
    assert cut("x" * 100, 0) == "\n[100 characters are not shown]\n"


def test_bytes_that_are_no_text_are_shown_as_what_can_be_read() -> None:
    result = ExecResult(0, b"a\xff\n", b"b\n", frozenset(), 0.1, 0.1, 0)
    assert shown(result, QUICK, 100, is_session=True, is_sandbox_lost=False) == "a�\nb"
    killed = ExecResult(-9, b"", b"", frozenset({Limit.CPU, Limit.PROCESSES}), 0.1, 0.1, 0)
    assert shown(killed, QUICK, 100, is_session=False, is_sandbox_lost=False) == (
        "[stopped after 5 s of processor time; at most 64 processes may run]"
    )


async def test_a_workspace_lends_packages_and_says_so(backend: str) -> None:
    env = Guest()
    driver = EnvDriver(env)
    env.toolset = Workspace("python", "shell", "files", backend=backend, packages=["numpy", "sympy"])
    start = await driver.reset(Task("t"))
    told = {str(spec["name"]): str(spec["description"]) for spec in start.tools}
    assert [name for name in told if "import numpy, sympy" in told[name]] == ["python", "shell"]
    assert await say(driver, "python", code="import sympy; sympy.sqrt(8)") == "2*sqrt(2)"
    assert await say(driver, "shell", command="python3 -c 'import numpy; print(numpy.arange(4).sum())'") == "6"
    plain = EnvDriver(guest(backend=backend))
    await plain.reset(Task("t"))
    assert "No module named 'numpy'" in await say(plain, "python", code="import numpy")
    assert len(pools.own_pools().pools) == 2
    await driver.close()
    await plain.close()


def test_packages_that_cannot_be_lent_are_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match=r"^package 'no-such' is not installed\. pip install no-such"):
        toolsets(["python:process"], ["no-such"])
    with pytest.raises(ConfigError, match=r"^packages numpy: only tools that run code use them; add python or shell"):
        toolsets(["calculator", "files:process"], ["numpy"])
    assert len(toolsets(["files:process", "shell"], ["numpy"])) == 1
