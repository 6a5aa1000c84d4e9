"""The testing kit: a rehearsal is what training would see, and each check fails on the fault it is there for."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentrl.engine.scripted import Die, Hang
from agentrl.env import Context, Env, EnvConfig, Episode, Limits, Message, Policy, Task, reward, text_of, tool
from agentrl.env.testing import (
    cancel_everywhere,
    check_canaries,
    check_cancellation,
    check_concurrent,
    check_environment,
    check_oracle,
    check_twins,
    model_turns,
    no_leaks,
    play_signals,
    rehearse,
    tool_call,
    values,
)
from agentrl.errors import EnvError
from agentrl.types import StopReason
from tests.tiny import tiny_tokenizer

ROOT = Path(__file__).parents[3]


class Sums(Env):
    """Adds two numbers; `fault` names what is wrong with it."""

    class Config(EnvConfig):
        """Keys."""

        fault: str = ""

    limits = Limits(max_turns=3)
    seen: list[int] = []  # noqa: RUF012 (shared on purpose: what one episode leaves to the next)
    left: set[asyncio.Task[Any]] = set()  # noqa: RUF012 (so that nothing collects them)

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}-{n}", (n, n + 3)) for n in range(10)]

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        if self.config.fault == "dice":
            return [{"role": "user", "content": str(random.random())}]
        if self.config.fault == "task":
            self.left.add(asyncio.create_task(asyncio.Event().wait()))
        a, b = task.data
        return [{"role": "user", "content": f"{a} + {b}?"}]

    @tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @reward
    def right(self, ctx: Context) -> float:
        if self.config.fault == "state":
            self.seen.append(1)
            return float(len(self.seen))
        return 1.0 if str(sum(ctx.task.data)) in ctx.text else 0.0

    def oracle(self, task: Task) -> Policy:
        return ["no idea"] if self.config.fault == "oracle" else [str(sum(task.data))]

    def canaries(self, task: Task) -> dict[str, Policy]:
        return {"all": [" ".join(map(str, range(99)))]} if self.config.fault == "canary" else {"none": [""]}


def broken(fault: str) -> Any:
    return lambda: Sums(fault=fault)


# ---- rehearsals


def test_a_rehearsal_returns_the_trajectory_that_would_be_trained_on() -> None:
    trajectory = rehearse(Sums(), ["It is 7."], index=2)
    assert (trajectory.stop_reason, trajectory.reward, trajectory.task_id) == (StopReason.ENV_DONE, 1.0, "train-2")
    [sequence] = trajectory.sequences
    actions = bytes(token for token, is_action in zip(sequence.ids, sequence.mask, strict=True) if is_action)
    assert actions.rstrip(b"\0").decode() == "It is 7."
    assert len(sequence.logprobs) == len(sequence.versions) == len(sequence.ids)


def test_a_rehearsed_model_calls_tools_and_sees_their_results() -> None:
    trajectory = rehearse(Sums(), [f"Let me see. {tool_call('add', a=3, b=6)}", "9"], index=3)
    assert [message["role"] for message in trajectory.messages] == ["user", "assistant", "tool", "assistant"]
    assert text_of(trajectory.messages[2]) == "9"
    assert trajectory.reward == 1.0
    assert len(trajectory.sequences) == 1  # the second turn continues the first


def test_a_turn_may_be_a_message_and_all_turns_a_function_of_the_messages() -> None:
    call = {"function": {"name": "add", "arguments": {"a": 3, "b": 6}}}
    message: Message = {"role": "assistant", "content": "", "tool_calls": [call]}  # type: ignore[list-item]
    assert rehearse(Sums(), [message, "9"], index=3).reward == 1.0

    def policy(messages: list[Message]) -> str:
        return text_of(messages[-1]) if messages[-1]["role"] == "tool" else tool_call("add", a=3, b=6)

    assert rehearse(Sums(), policy, index=3).reward == 1.0


@pytest.mark.parametrize("failure", [Hang(), Die()])
def test_an_engine_that_fails_in_a_rehearsal_is_infrastructure_and_never_a_reward(failure: Any) -> None:
    trajectory = rehearse(Sums(), [failure], timeout_s=0.4)
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.INFRA_ERROR, False)


def test_a_script_that_ends_too_early_is_an_error_that_says_where() -> None:
    with pytest.raises(EnvError, match="the episode needs turn 2, and the script ends after 1"):
        rehearse(Sums(), [tool_call("add", a=1, b=2)])


def test_a_text_in_place_of_the_turns_is_an_error() -> None:
    with pytest.raises(EnvError, match=r"rehearse: the turns are a list: write \['9'\]"):
        rehearse(Sums(), "9")


def test_what_the_environment_raises_is_in_the_trajectory() -> None:
    trajectory = rehearse(Sums(), ["9"], index=99)
    assert trajectory.stop_reason is StopReason.ENV_ERROR
    assert "there are 10 tasks" in trajectory.error


def test_a_rehearsal_takes_the_tokenizer_and_template_of_a_model(tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    trajectory = rehearse(Sums(), [tool_call("add", a=3, b=6), "9"], index=3, tokenizer=tmp_path)
    assert trajectory.reward == 1.0
    assert tiny_tokenizer().decode(trajectory.sequences[0].ids).startswith("<|im_start|>")


def test_a_rehearsal_works_inside_a_running_event_loop() -> None:
    async def inside() -> float:
        return rehearse(Sums(), ["7"], index=2).reward

    assert asyncio.run(inside()) == 1.0


# ---- checks


def test_an_environment_without_a_fault_passes_every_check() -> None:
    check_environment(Sums)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("oracle", "the oracle of task 'train-0' .* earns 0.0"),
        ("canary", "canary 'all' of task 'train-0' .* earns 1.0"),
        ("state", "canary 'none' of task 'train-0' .* earns 9.0"),
        ("dice", "differ"),
        ("task", "tasks were left"),
    ],
)
def test_check_environment_fails_on_each_fault_and_says_which(fault: str, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        check_environment(broken(fault))
    Sums.seen.clear()


async def test_each_check_fails_on_the_fault_it_is_there_for() -> None:
    with pytest.raises(AssertionError, match="oracle"):
        await check_oracle(broken("oracle"))
    with pytest.raises(AssertionError, match="canary"):
        await check_canaries(broken("canary"))
    with pytest.raises(AssertionError, match="earns another reward when 8 episodes are open than alone"):
        await check_concurrent(broken("state"), 8)
    with pytest.raises(AssertionError, match="two episodes with seed 0 and member 0 differ"):
        await check_twins(broken("dice"))
    Sums.seen.clear()


@pytest.mark.parametrize(
    ("canaries", "says"),
    [
        (None, r" returned None; return a dict from names to policies: \{'silence': \[\]\}"),
        ({1: []}, r" returned \{1: \[\]\}; return a dict from names"),
        ({"junk": "junk"}, ": 'junk': write a list of turns, or a function of the messages so far, not 'junk'"),
        ({"junk": [None]}, ": 'junk': a turn is text or an assistant message, not None"),
    ],
)
async def test_canaries_that_cannot_be_played_are_an_error_that_says_where(canaries: Any, says: str) -> None:
    class Mine(Sums):
        def canaries(self, task: Task) -> Any:
            return canaries

    for check in (check_canaries(Mine), check_concurrent(Mine, 2)):
        with pytest.raises(EnvError, match=rf"^Mine\.canaries \(test_testing\.py:\d+\){says}"):
            await check


@pytest.mark.parametrize(("oracle", "says"), [("7", "not '7'"), (None, "not None"), ([7], "not 7")])
async def test_an_oracle_that_cannot_be_played_is_an_error_that_says_where(oracle: Any, says: str) -> None:
    class Mine(Sums):
        def oracle(self, task: Task) -> Any:
            return oracle

    for check in (check_oracle(Mine), check_twins(Mine), check_cancellation(Mine)):
        with pytest.raises(EnvError, match=rf"^Mine\.oracle \(test_testing\.py:\d+\): .*{says}"):
            await check


async def test_a_task_that_is_left_is_a_leak() -> None:
    with pytest.raises(AssertionError, match="tasks were left"):
        async with no_leaks():
            left = asyncio.create_task(asyncio.Event().wait())
    left.cancel()


async def test_an_episode_is_cancelled_at_every_model_turn_and_between() -> None:
    cancellations = [each async for each in cancel_everywhere(Sums)]
    assert model_turns(cancellations) == [1, 2, 3]  # the reset, the turn, the signals
    assert any(not each.is_models_turn for each in cancellations)


async def test_signals_by_name() -> None:
    env = Sums()
    assert values(await play_signals(env, Task("x", (1, 2)), ["3"])) == {"right": 1.0}


class Few(Sums):
    """Has two tasks, no canaries, and a reward that compares the members of a group."""

    def tasks(self, split: str) -> list[Task]:
        return super().tasks(split)[:2]

    def canaries(self, task: Task) -> dict[str, Policy]:
        return {}

    @reward(scope="group")
    def spoken(self, episodes: list[Episode]) -> list[float]:
        return [float(episode.text != "") for episode in episodes]


class OnlyGroup(Few):
    """Is judged by its group alone."""

    right = None


class Restless(Sums):
    """Draws its tasks anew whenever they are read."""

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}-{n}", (n, random.random())) for n in range(4)]


class Slow(Sums):
    """Takes its time."""

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        await asyncio.Event().wait()
        return []


class Untidy(Sums):
    """Has a teardown that fails if setup did not finish."""

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        messages = await super().setup(task, ctx)
        await asyncio.sleep(0)
        self.db = 1
        return messages

    async def teardown(self, ctx: Context) -> None:
        assert self.db


@pytest.mark.parametrize("env", [Few, OnlyGroup])
def test_few_tasks_no_canaries_and_group_rewards_are_no_fault(env: type[Env]) -> None:
    check_environment(env)


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (Restless, "is another task when the tasks are read again"),
        (Untidy, "ended with EnvError.*teardown raised AttributeError"),
    ],
)
def test_check_environment_fails_on_what_is_left_and_on_what_differs(env: type[Env], says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        check_environment(env)


def test_checks_that_take_too_long_end() -> None:
    with pytest.raises(AssertionError, match=r"the checks took longer than 0\.2 s"):
        check_environment(Slow, timeout_s=0.2)


async def test_check_environment_works_inside_a_running_event_loop() -> None:
    check_environment(Sums)
    with pytest.raises(TypeError, match="needs a class or a function that makes environments, not <"):
        check_environment(Sums())  # type: ignore[arg-type]


async def test_a_task_of_somebody_else_is_no_leak() -> None:
    foreign = asyncio.create_task(asyncio.Event().wait())
    await check_cancellation(Sums)
    foreign.cancel()


# ---- the packages of this repository


def run_copy(env: str, folder: Path, *arguments: str) -> str:
    """Run the tests of envs/<env> in a copy, where the repository cannot be imported; agentrl is installed."""
    copy = shutil.copytree(
        ROOT / "envs" / env, folder / env, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    code = (
        f"import pytest, sys, agentrl_{env}; print(agentrl_{env}.__file__); sys.exit(pytest.main({list(arguments)!r}))"
    )
    site = folder / "site"  # agentrl as if installed: without the folder that holds `tests`
    site.mkdir()
    for package in ("agentrl", "sandbox/agentrl_sandbox", "tools/agentrl_tools"):
        (site / Path(package).name).symlink_to(ROOT / package)
    run = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": f"{copy}:{site}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith(str(copy))
    return run.stdout


@pytest.mark.timeout(300)
def test_guess_copied_out_of_the_repository_passes_its_tests(tmp_path: Path) -> None:
    assert " passed" in run_copy("guess", tmp_path, "-q", "-p", "no:cacheprovider")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("env", ["code", "functions", "math", "search"])
def test_the_tests_of_each_package_import_nothing_of_the_repository(env: str, tmp_path: Path) -> None:
    assert "tests collected" in run_copy(env, tmp_path, "-q", "--collect-only", "-p", "no:cacheprovider")
