"""An environment in another interpreter has the semantics of one in the worker's process, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from agentrl.cli.main import main
from agentrl.endpoint import Ask
from agentrl.engine.scripted import Delay, Hang
from agentrl.env import Episode, close_shared, start_process, verdict
from agentrl.env.dry_run.verdict import DryRunRequest
from agentrl.env.testing import tool_call
from agentrl.errors import AgentRLError, ConfigError, EngineDiedError, EngineError, RoleError
from agentrl.hosting.environments import environment, inspect_env
from agentrl.hosting.interpreter import check_packages
from agentrl.packaging.inspection import inspect
from agentrl.roles import Casting, Player, RoleLimits, RoleReply
from agentrl.types import Message, Signal, StopReason, text_of
from tests.unit.hosting.stages import FILE, Stage, stored
from tests.unit.hosting.venvs import made_venv

DEADLINE_S = 200.0


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with what agentrl needs and httpx, without torch, vllm, ray and transformers."""
    return made_venv(tmp_path_factory.mktemp("other"), "httpx")


Make = Callable[..., Awaitable[Stage]]


@pytest.fixture
async def make(python: Path) -> AsyncIterator[Make]:
    """Makes stages of an environment of mine.py, by default in the other interpreter, and closes them."""
    stages: list[Stage] = []

    async def stage(
        *script: Any, env: str = "Chat", file: Path = FILE, here: bool = False, restarts: int = 2,
        castings: Mapping[str, Casting] = MappingProxyType({}), **options: Any,
    ) -> Stage:  # fmt: skip
        made = environment(f"{file}:{env}", options, None if here else python, restarts)
        stages.append(await Stage.of(made, script, castings))
        return stages[-1]

    yield stage
    for made in stages:
        await made.close()
    await close_shared()


def lines(folder: Path) -> list[str]:
    file = folder / "lines"
    return file.read_text().splitlines() if file.exists() else []


def started(folder: Path) -> list[int]:
    """The process of `Starting`, and those that it has started."""
    return [int(pid) for line in lines(folder) if line.startswith("started") for pid in line.split()[1:]]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something another process does."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


CALL = tool_call("double", number=4)
HUGE = f'<tool_call>{{"name": "double", "arguments": {{"number": {10**400}}}}}</tool_call>'
SAME: dict[str, tuple[str, dict[str, Any], dict[str, Any], tuple[Any, ...]]] = {
    "three turns": ("Chat", {}, {}, ()),
    "tools": ("Chat", {}, {}, (CALL, tool_call("double", number="x"), "done", "b", "c")),
    "a huge number": ("Chat", {}, {}, (HUGE, "b")),
    "a limit of turns": ("Chat", {}, {"max_turns": 2}, ()),
    "success": ("Chat", {}, {"asks_success": True}, ()),
    "a deadline": ("Chat", {"fault": "respond", "how": "hang"}, {"episode_timeout_s": 3.0}, ()),
    "an agent": ("Agent", {}, {}, ()),
    "an agent over its limit of calls": ("Agent", {"turns": 6}, {}, ()),
    "an agent that raises": ("Agent", {"fault": "play"}, {}, ()),
    "an agent of token ids": ("TokenAgent", {}, {}, ()),
    "evidence without a text": ("Unreadable", {}, {}, ()),
    "an agent with event loops of its own": ("LoopsAgent", {}, {"episode_timeout_s": 20.0}, ()),
    **{
        f"{how} in {place}": (
            "Hasty" if how == "hang" else "Chat", {"fault": place, "how": how}, {}, (CALL, "b", "c"),
        )
        for place in ("setup", "tool", "respond", "score", "teardown")
        for how in ("raise", "infra", "hang", "exit", "cancel")
    },
}  # fmt: skip


@pytest.mark.parametrize(("env", "options", "settings", "script"), SAME.values(), ids=SAME)
async def test_a_trajectory_is_the_same_as_in_the_workers_process(
    make: Make, env: str, options: dict[str, Any], settings: dict[str, Any], script: tuple[Any, ...]
) -> None:
    stage = await make(*script, env=env, **options)
    await stage.env.facts()  # the deadline of an episode is not for the start of the process
    there = await stage.run(3, **settings)
    here = await (await make(*script, env=env, here=True, **options)).run(3, **settings)
    assert stored(there) == stored(here)
    assert bool(there.traceback) == bool(here.traceback)


@dataclass(frozen=True)
class Partner(Player):
    """Fails when it is asked something with `fault`."""

    fault: str = "nothing"
    error: type[AgentRLError] = RoleError

    async def answer(self, ask: Ask, seed: int) -> RoleReply:
        said = text_of(ask.messages[-1])
        if self.fault in said:
            raise self.error("no reply")
        if "cannot be used" in said:
            said = "7"
        elif "good" in said:
            said = verdict(list(ask.messages), 5)
        else:
            said = f"{said} {seed}"
        return RoleReply(Message(role="assistant", content=said), 10, 3)


@pytest.mark.parametrize("env", ["Asking", "AskingAgent"])
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("nothing", RoleError),
        *((place, kind) for place in ("begin", "number", "good") for kind in (RoleError, EngineError)),
        ("begin", EngineDiedError),
    ],
)
async def test_models_of_the_worker_play_the_roles(make: Make, env: str, fault: str, error: type[AgentRLError]) -> None:
    castings = {"partner": Casting(Partner(fault, error), RoleLimits(max_calls=20, retries=1), 30.0)}
    there, here = [await make(env=env, here=is_here, castings=castings) for is_here in (False, True)]
    ran, expected = await there.run(3), await here.run(3)
    assert stored(ran) == stored(expected)
    assert ran.roles == expected.roles
    if fault == "nothing" and env == "Asking":
        assert ran.is_scored
        assert ran.roles["partner"].unreadable == 3
        assert ran.roles["partner"].calls == 8
        assert await ranked(there) == await ranked(here)


@dataclass(frozen=True)
class Mumbler(Player):
    """Says something that can be read as a number only if it is asked again."""

    reads: str
    kept: list[str] = field(default_factory=list)

    async def answer(self, ask: Ask, seed: int) -> RoleReply:
        said = self.reads if "cannot be used" in text_of(ask.messages[-1]) else "hm"
        return RoleReply(Message(role="assistant", content=said), 10, 3, key=f"{text_of(ask.messages[-1])[:10]}")

    async def keep(self, reply: RoleReply) -> None:
        self.kept.append(reply.key)


@pytest.mark.parametrize("is_here", [True, False])
@pytest.mark.parametrize(("reads", "kept"), [("hm", ["begin"]), ("7", ["begin", "number yes", "This reply"])])
async def test_replies_that_could_be_used_are_kept_where_models_are(
    make: Make, reads: str, kept: list[str], is_here: bool
) -> None:
    mumbler = Mumbler(reads)
    castings = {"partner": Casting(mumbler, RoleLimits(max_calls=20, retries=1), 30.0)}
    await (await make("yes", env="Asking", here=is_here, castings=castings, turns=1)).run()
    assert mumbler.kept == kept


async def test_what_was_asked_of_a_role_is_counted_though_the_teardown_fails(make: Make) -> None:
    castings = {"partner": Casting(Partner(), RoleLimits(max_calls=20), 30.0)}
    ended = await (await make(env="Asking", castings=castings, fault="teardown")).run()
    assert ended.error
    assert ended.roles["partner"].calls == 8


async def test_a_role_that_nobody_plays_is_refused(make: Make) -> None:
    with pytest.raises(ConfigError, match="Asking: nobody plays partner"):
        await (await make(env="Asking")).env.facts()


async def ranked(stage: Stage, before: Callable[[], Awaitable[None]] | None = None) -> list[list[Signal]]:
    """The group rewards of three episodes of one task."""
    group = [await stage.run(member) for member in range(3)]
    driver = stage.env.driver()
    task = await driver.task("train", 7)
    if before:
        await before()
    rows = await driver.score_group([Episode.of(task, one) for one in group])
    return [list(row) for row in rows]


async def test_group_rewards_are_the_same(make: Make) -> None:
    there = await make("a", "abc", "ab", turns=1)
    assert (await there.env.facts()).has_group_rewards
    assert await there.env.driver().size("train") == 20
    signals = await ranked(there)
    assert signals == await ranked(await make("a", "abc", "ab", turns=1, here=True))
    assert [[one.value for one in row] for row in signals] == [[0.0], [2.0], [1.0]]


async def test_the_error_of_a_trajectory_shows_the_authors_lines(make: Make) -> None:
    failed = await (await make(fault="setup")).run()
    assert failed.stop_reason is StopReason.ENV_ERROR
    assert "mine.py" in failed.error
    assert 'raise KeyError("tripped")' in failed.traceback


async def test_a_killed_process_is_an_infrastructure_failure_and_is_started_again(make: Make, tmp_path: Path) -> None:
    stage = await make(fault="respond", how="once", folder=str(tmp_path))
    lost = await stage.run()
    assert lost.stop_reason is StopReason.INFRA_ERROR
    assert "was killed by SIGKILL" in lost.error
    assert not lost.is_scored
    assert (await stage.run()).is_scored


async def test_the_end_of_a_process_is_noticed_though_one_that_it_forked_lives_on(make: Make, tmp_path: Path) -> None:
    stage = await make(fault="respond", how="fork", folder=str(tmp_path))
    async with asyncio.timeout(60):  # the silence of a blocked process is noticed after more than 120 s
        lost = await stage.run()
    assert lost.stop_reason is StopReason.INFRA_ERROR
    assert "was killed by SIGKILL" in lost.error
    assert (await stage.run()).is_scored
    [left] = [int(line.removeprefix("left ")) for line in lines(tmp_path) if line.startswith("left ")]
    assert not is_running(left)  # though it has left the group, as daemons do


async def close(stage: Stage, _: int) -> None:
    await stage.close()


async def kill(_: Stage, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


async def kill_as_if_blocked(stage: Stage, _: int) -> None:
    (await stage.env.link())._connection.kill()  # type: ignore[union-attr]


async def cancel_the_close(stage: Stage, _: int) -> None:
    closing = asyncio.ensure_future((await stage.env.link())._connection.close())  # type: ignore[union-attr]
    await asyncio.sleep(0)  # it has begun
    closing.cancel()
    await asyncio.wait({closing})


@pytest.mark.parametrize("end", [close, cancel_the_close, kill, kill_as_if_blocked])
async def test_what_an_environment_has_started_ends_with_its_process(
    make: Make, tmp_path: Path, end: Callable[[Stage, int], Awaitable[None]]
) -> None:
    ours = await start_process("sleep", "600")
    stage = await make(env="Starting", fault="setup", how="hang", folder=str(tmp_path))
    running = asyncio.ensure_future(stage.run())
    await until(lambda: bool(started(tmp_path)))
    assert all(map(is_running, started(tmp_path)))
    await end(stage, started(tmp_path)[0])
    assert (await running).stop_reason is StopReason.INFRA_ERROR
    assert not any(map(is_running, started(tmp_path)))
    assert is_running(ours.process.pid)
    await ours.end()


async def test_another_source_is_not_taken_for_the_one_that_the_run_began_with(make: Make, tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(FILE.read_text())
    stage = await make(env="Chat", file=own, fault="respond", how="once", folder=str(tmp_path))
    await stage.env.facts()
    own.write_text(f"{FILE.read_text()}# another verifier\n")
    assert (await stage.run()).stop_reason is StopReason.INFRA_ERROR
    with pytest.raises(ConfigError, match="not the one that this run began with"):
        await stage.env.facts()


async def test_a_process_that_dies_again_and_again_is_not_started_for_ever(
    make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    stage = await make(restarts=1, fault="respond", how="kill")
    ends = [await stage.run() for _ in range(3)]
    assert [end.stop_reason for end in ends] == [StopReason.INFRA_ERROR] * 3
    assert "what it said last" in ends[0].error
    assert "was lost 2 times (engine.restarts = 1)" in ends[2].error
    out, err = capfd.readouterr()
    assert (out, "what it said last" in err) == ("", True)


async def test_group_rewards_survive_the_process_that_played_the_group(make: Make, tmp_path: Path) -> None:
    stage = await make("a", "abc", "ab", turns=1, folder=str(tmp_path))

    async def kill() -> None:
        pid = int(lines(tmp_path)[0].rpartition(" ")[2])
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not is_running(pid))

    assert [[one.value for one in row] for row in await ranked(stage, kill)] == [[0.0], [2.0], [1.0]]


async def test_a_cancelled_episode_is_torn_down_and_the_end_closes_what_is_shared(make: Make, tmp_path: Path) -> None:
    waiting = asyncio.Event()

    async def note() -> None:
        waiting.set()

    stage = await make(Delay(note, Hang()), folder=str(tmp_path))
    running = asyncio.ensure_future(stage.run(5))
    await waiting.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await stage.close()
    assert [line for line in lines(tmp_path) if not line.startswith("opened")] == ["torn down 5", "closed"]


async def test_a_cancelled_method_that_hangs_ends_at_once(make: Make, tmp_path: Path) -> None:
    stage = await make(fault="respond", how="hang", folder=str(tmp_path))
    running = asyncio.ensure_future(stage.run(5))
    await until(lambda: any(line.startswith("respond in") for line in lines(tmp_path)))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert lines(tmp_path)[-1] == "torn down 5"


WORKER = """
import asyncio, sys
from pathlib import Path
from agentrl.hosting.environments import environment

async def main():
    env = environment(sys.argv[1], {"fault": "setup", "how": sys.argv[4], "folder": sys.argv[3]}, Path(sys.argv[2]))
    driver = env.driver()
    await driver.reset(await driver.task("train", 0))

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["hang", "block"])
async def test_the_process_ends_when_its_worker_is_killed(how: str, python: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORKER, f"{FILE}:Starting", str(python), str(tmp_path), how]
    worker = subprocess.Popen(command)  # noqa: ASYNC220 (returns at once)
    try:
        await until(lambda: bool(started(tmp_path)))
        assert all(map(is_running, started(tmp_path)))
    finally:
        worker.kill()
        worker.wait()
    await until(lambda: not any(map(is_running, started(tmp_path))))


async def test_many_episodes_at_once_leave_no_task(make: Make) -> None:
    stage = await make(turns=1)
    await stage.env.facts()
    before = asyncio.all_tasks()
    ends = await asyncio.gather(*(stage.run(n % 8, n % 20) for n in range(300)))
    assert all(end.is_scored for end in ends)
    assert asyncio.all_tasks() == before


# --- before a run ---------------------------------------------------------------------------------------------------


def inspected(python: Path, name: str = f"{FILE}:Chat", **options: Any) -> Any:
    asked = DryRunRequest(name, options, ("train", "test"), 0, 0)
    return inspect_env(asked, python, has_reward_models=False)


def test_an_inspection_records_the_interpreter(python: Path) -> None:
    found = inspected(python)
    here = inspect_env(DryRunRequest(f"{FILE}:Chat", {}, ("train", "test")), None, has_reward_models=False)
    assert found.prompt == here.prompt
    source = found.source()
    assert replace(source, interpreter=None) == here.source()
    assert source.interpreter.packages["msgspec"]
    assert "torch" not in source.interpreter.packages


def test_a_fault_is_found_before_the_run(python: Path) -> None:
    with pytest.raises(ConfigError, match=r"KeyError: 'tripped' \(mine.py"):
        inspected(python, fault="setup")
    with pytest.raises(ConfigError, match="how_many"):
        inspected(python, how_many=3)


@pytest.mark.parametrize("is_apart", [False, True])
def test_a_class_that_cannot_be_made_is_described_alike_in_every_interpreter(
    is_apart: bool, python: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from agentrl.env import Env\n\nclass Mine(Env):\n    def __init__(self):\n        pass\n\n"
        "    def tasks(self, split): return []\n"
        "    def setup(self, task, ctx): return []\n"
    )
    request = DryRunRequest(str(own), {}, ())
    with pytest.raises(ConfigError, match=r"^Mine cannot be made: TypeError: .* \(own\.py:4\)$"):
        inspect_env(request, python if is_apart else None, has_reward_models=False)


def test_an_interpreter_that_lacks_what_agentrl_needs_is_refused_with_the_remedy(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True, timeout=DEADLINE_S)
    with pytest.raises(ConfigError, match=r"lacks what agentrl needs.*pip install.*'msgspec>="):
        inspected(tmp_path / "bare" / "bin" / "python")


@pytest.mark.parametrize("name", ["none", "", "bare.txt"])
def test_a_path_that_is_no_interpreter_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "bare.txt").touch()
    with pytest.raises(ConfigError, match=r"env\.python .* cannot be executed"):
        inspected(tmp_path / name)


def script(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def test_an_interpreter_may_print_what_it_likes_when_it_starts(python: Path, tmp_path: Path) -> None:
    check_packages(script(tmp_path / "python", "printf 'welcome \\377'", "printf '\\377' >&2", f'exec {python} "$@"'))


def test_a_python_that_is_too_old_is_said(tmp_path: Path) -> None:
    old = script(tmp_path / "python", "echo 'Unknown option: -P' >&2", "echo 'Try `python -h' >&2", "exit 2")
    with pytest.raises(ConfigError, match=r"env\.python \S+: agentrl needs Python 3\.11 or later"):
        check_packages(old)


def test_what_an_environment_prints_is_no_part_of_its_source(python: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "import atexit, os\nfrom agentrl.env import Env\n\n"
        "for output in (1, 2):\n    os.write(output, b'\\xff\\n')\n"
        "print('loading', end='')\natexit.register(print, 'bye')\n\n"
        "class Mine(Env):\n"
        "    def tasks(self, split): return []\n"
        "    def setup(self, task, ctx): return []\n"
    )
    assert [file.name for file in inspect(str(own), python).source.files] == ["own.py"]


def test_packages_of_the_other_interpreter_are_used_and_ours_are_not(python: Path, tmp_path: Path) -> None:
    site = next((python.parent.parent / "lib").glob("python3*")) / "site-packages"
    (site / "openai.py").write_text("__version__ = '0.0.1'\n")
    (site / "agentrl.py").write_text("raise RuntimeError('the agentrl that is installed there')\n")
    own = tmp_path / "own.py"
    own.write_text(
        "import openai\nfrom importlib.util import find_spec\nfrom agentrl.env import Env, Message, Task, reward\n\n\n"
        "class Mine(Env):\n"
        "    def tasks(self, split):\n        return [Task(f'{split}-{n}') for n in range(2)]\n"
        "    def setup(self, task, ctx):\n"
        "        return [Message(role='user', content=f'{openai.__version__} {find_spec(\"torch\")}')]\n"
        "    @reward\n    def right(self, ctx):\n        return 1\n"
    )
    try:
        assert inspected(python, str(own)).prompt == "0.0.1 None"
    finally:
        (site / "openai.py").unlink()
        (site / "agentrl.py").unlink()


@pytest.mark.timeout(DEADLINE_S)
def test_commands_about_an_environment_run_in_its_interpreter(
    python: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "import sys\nfrom agentrl.env import Env, Message, Task, reward\n\n\n"
        'class Mine(Env):\n    """Only there."""\n'
        "    def preflight(self):\n"
        f"        if sys.prefix != {str(python.parent.parent)!r}:\n            raise RuntimeError(sys.prefix)\n"
        "        return sys.prefix\n"
        "    def tasks(self, split):\n        return [Task(f'{split}-{n}') for n in range(2)]\n"
        "    def setup(self, task, ctx):\n        return [Message(role='user', content=sys.prefix)]\n"
        "    def respond(self, turn, ctx):\n        from agentrl.env import Reply\n        return Reply.end()\n"
        "    @reward\n    def right(self, ctx):\n        return 1\n"
    )
    assert main(["env", "show", str(own), "--env.python", str(python)]) == 0
    assert f"user\n  {python.parent.parent}" in capfd.readouterr().out
    checked = ["env", "check", str(own), "--level", "contract"]
    assert main([*checked, f"--env.python={python}"]) == 0
    assert main(checked) == 1
    capfd.readouterr()
    assert main([*checked, "--level", "learnability", "--env.python", str(python)]) == 2
    assert "the level learnability needs engines" in capfd.readouterr().err
