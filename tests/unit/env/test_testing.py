"""The testing kit: a rehearsal is what training would see, and each check fails on the fault it is there for."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentrl.engine.scripted import Die, Hang
from agentrl.env import Context, Env, EnvConfig, Episode, Limits, Message, Policy, Task, reward, text_of, tool
from agentrl.env.policies import echo
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
from agentrl.errors import ConfigError, EnvError
from agentrl.types import Signal, StopReason
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


@pytest.mark.parametrize(
    ("turns", "says"),
    [
        ([3], "turn 1 is 3; a turn is text"),
        (["7", Hang], r"turn 2 is <class .*Hang'>; write Hang\(\); a turn is"),
        (None, "write a list of turns, or a function of the messages so far, not None"),
        (lambda _: 3, "turn 1 is 3; a turn is text"),
    ],
)
def test_a_turn_that_cannot_be_rehearsed_is_an_error_that_says_which(turns: Any, says: str) -> None:
    with pytest.raises(EnvError, match=f"rehearse: {says}"):
        rehearse(Sums(), turns)


def test_a_class_in_place_of_the_environment_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"Sums is not an object of an environment; pass Sums\(\)"):
        rehearse(Sums, ["7"])  # type: ignore[arg-type]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("tokenizer", ["./nope", Path("nope")])
def test_a_tokenizer_that_is_not_there_is_an_error_at_once(tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match=r"rehearse: tokenizer (\./)?nope: there is no such folder"):
        rehearse(Sums(), ["7"], tokenizer=tokenizer)


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


@pytest.mark.parametrize(("oracle", "says"), [("7", "not '7'"), ([7], "not 7")])
async def test_an_oracle_that_cannot_be_played_is_an_error_that_says_where(oracle: Any, says: str) -> None:
    class Mine(Sums):
        def oracle(self, task: Task) -> Any:
            return oracle

    for check in (check_oracle(Mine), check_twins(Mine), check_cancellation(Mine)):
        with pytest.raises(EnvError, match=rf"^Mine\.oracle \(test_testing\.py:\d+\): .*{says}"):
            await check


async def test_without_an_oracle_noise_plays_what_needs_no_solution() -> None:
    class Unsolved(Sums):
        def oracle(self, task: Task) -> Policy | None:
            return None

    await check_twins(Unsolved)
    await check_cancellation(Unsolved)
    with pytest.raises(
        AssertionError, match=r"^Unsolved\.oracle \(test_testing\.py:\d+\) has no solution of task 'train-0'"
    ):
        await check_oracle(Unsolved)
    Unsolved.oracle = Env.oracle  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match=r"^Unsolved\.oracle has no solution of .*; write oracle\(task\)"):
        await check_oracle(Unsolved)


async def test_an_oracle_earns_the_most_that_the_class_says_or_solves_the_task() -> None:
    class Scaled(Sums):
        solved_reward = 20.0

        @reward
        def right(self, ctx: Context) -> float:
            return 20.0 * Sums.right(self, ctx)

    class Costly(Sums):
        @reward
        def right(self, ctx: Context) -> float:
            return Sums.right(self, ctx) - 3.0

        def success(self, ctx: Context) -> bool:
            return self.right(ctx) == -2.0

    class Lazy(Scaled):
        @reward
        def right(self, ctx: Context) -> float:
            return Sums.right(self, ctx)

    class Unscored(Costly):
        @reward
        def right(self, ctx: Context) -> Any:
            return None

    await check_oracle(Scaled)
    await check_oracle(Costly)
    await check_oracle(Lazy, least=1.0)
    for env, says in ((Lazy, r"earns 1\.0, not 20\.0"), (Unscored, "is not scored .*right: returned None")):
        with pytest.raises(AssertionError, match=f"the oracle of task 'train-0' .*{says}"):
            await check_oracle(env)
    Costly.oracle = lambda *_: ["I do not know"]  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match=r"earns -3, and its success is False"):
        await check_oracle(Costly)


async def test_without_an_oracle_an_echo_may_show_that_episodes_share_state() -> None:
    class Parrot(Sums):
        oracle = Env.oracle

        @reward
        def right(self, ctx: Context) -> float:
            return float("?" in ctx.text)

        def canaries(self, task: Task) -> dict[str, Policy]:
            return {}

    await check_concurrent(Parrot, 6)


async def test_a_task_that_is_left_is_a_leak() -> None:
    with pytest.raises(AssertionError, match="tasks were left"):
        async with no_leaks():
            left = asyncio.create_task(asyncio.Event().wait())
    left.cancel()


async def test_an_episode_is_cancelled_at_every_model_turn_and_between() -> None:
    cancellations = [each async for each in cancel_everywhere(Sums)]
    assert model_turns(cancellations) == [1, 2, 3]  # the reset, the turn, the signals
    assert any(not each.is_models_turn for each in cancellations)


async def test_a_slow_episode_is_cancelled_once_in_each_line() -> None:
    every = [each.calls async for each in cancel_everywhere(Sums)]
    once = [each.calls async for each in cancel_everywhere(Sums, each_turn_s=0)]
    assert len(once) == len({*once}) < len(every)
    assert {*once} == {*every}


def test_an_echo_has_an_end() -> None:
    assert len(echo([Message(role="user", content="a" * 10**7)])) < 10**6


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


class Shuffled(Sums):
    """Shows the numbers that it draws in a reward of weight 0 and in its evidence."""

    @reward(weight=0.0)
    def shown(self, ctx: Context) -> Signal:
        return Signal("shown", ctx.state.drawn, evidence={"order": ctx.state.order})

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        ctx.state.drawn, ctx.state.order = ctx.rng.random(), ctx.rng.sample(range(99), 5)
        return await super().setup(task, ctx)


class Parts(Sums):
    """Has weights that do not add up to 1 in floating point."""

    @reward(weight=0.7)
    def right(self, ctx: Context) -> float:
        return float(ctx.text != "")

    @reward(weight=0.2)
    def second(self, ctx: Context) -> float:
        return float(ctx.text != "")

    @reward(weight=0.1)
    def third(self, ctx: Context) -> float:
        return float(ctx.text != "")


class Race(Sums):
    """Pays the shortest answer of a group."""

    @reward(weight=0.2, scope="group")
    def shortest(self, episodes: list[Episode]) -> list[float]:
        best = min(len(episode.text) for episode in episodes)
        return [float(len(episode.text) == best) for episode in episodes]


class Odd(Sums):
    """Has task data and evidence that `==` alone cannot compare."""

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}-{n}", Data(lambda: n, [float("nan")], np.ones(3))) for n in range(2)]  # noqa: B023

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [{"role": "user", "content": "Say 1."}]

    @reward
    def right(self, ctx: Context) -> Signal:
        return Signal("right", float(ctx.text == "1"), evidence={"nan": float("nan"), "seen": np.array([1.0, np.nan])})

    def oracle(self, task: Task) -> Policy:
        turns = iter(["1"])
        return lambda _: next(turns)


@dataclass
class Data:
    """Values without an equality of their own."""

    ask: Callable[[], int]
    numbers: list[float]
    array: Any


@pytest.mark.parametrize("env", [Shuffled, Parts, Race, Odd])
def test_draws_rounding_group_rewards_arrays_and_functions_are_no_fault(env: type[Env]) -> None:
    check_environment(env)


class Clocked(Sums):
    """Writes the time into its evidence."""

    @reward
    def right(self, ctx: Context) -> Signal:
        return Signal("right", 1.0 if ctx.text else 0.0, evidence={"at": [time.monotonic_ns()]})


class Consumed(Sums):
    """Has data that the first episode uses up."""

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}-{n}", {"lines": (n for n in range(2))}) for n in range(2)]


class Dull(Sums):
    """Never calls an episode a success."""

    def success(self, ctx: Context) -> bool:
        return False


class Lavish(Sums):
    """Calls every episode a success."""

    def success(self, ctx: Context) -> bool:
        return True


class Faulty(Sums):
    """Cannot say whether an episode is a success."""

    def success(self, ctx: Context) -> bool:
        raise KeyError("solved")


class Words(Sums):
    """Changes its configuration."""

    class Config(Sums.Config):
        """Keys."""

        words: list[str] = []  # noqa: RUF012 (pydantic copies it)

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        self.config.words.append("x")
        return await super().setup(task, ctx)


class Exhausted(Sums):
    """Keeps one policy for all episodes."""

    turns = iter(["3"])

    def oracle(self, task: Task) -> Policy:
        return lambda _: next(self.turns)


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (Clocked, r"seed 0 and member 0 differ at \[3\]\.result\[0\]\.evidence\['at'\]\[0\]: \d+ and \d+$"),
        (Consumed, r"'train-0' .* read again: data\['lines'\]: <generator .* and <generator .* \(cannot be compared"),
        (Dull, "the oracle of task 'train-0' .* earns 1, and its success is False$"),
        (Lavish, r"canary 'none' of task 'train-0' .* earns 0, and its success is True$"),
        (Faulty, r"the oracle of task .* has no success: KeyError: 'solved' \(test_testing\.py:\d+\)"),
        (Words, r"episodes changed self\.config, which all episodes of a run share: \['words'\]\[0\]: nothing and 'x'"),
    ],
)
def test_a_fault_is_named_with_the_field_and_both_values(env: type[Env], says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        check_environment(env)


def test_a_policy_that_has_ended_is_an_error_that_says_so() -> None:
    with pytest.raises(EnvError, match=r"the policy \(test_testing\.py:\d+\) raised StopIteration at turn 1: .* kept"):
        check_environment(Exhausted)


def test_a_function_that_returns_one_object_twice_is_an_error() -> None:
    env = Sums()
    with pytest.raises(ConfigError, match="returned the same object twice; return a new one"):
        check_environment(lambda: env)


async def test_no_tasks_and_no_episodes_are_an_error() -> None:
    with pytest.raises(ConfigError, match="tasks is 0; give 1 or more"):
        check_environment(Sums, tasks=0)
    with pytest.raises(ConfigError, match="episodes is 0; give 1 or more"):
        check_environment(Sums, episodes=0)
    with pytest.raises(ConfigError, match="tasks is 0; give 1 or more"):
        await check_concurrent(Sums, 2, tasks=0)
    with pytest.raises(EnvError, match=r"Empty\.tasks returns no task"):
        await check_concurrent(Empty, 2)


class Empty(Sums):
    """Has no tasks."""

    def tasks(self, split: str) -> list[Task]:
        return []


def test_checks_that_take_too_long_end() -> None:
    with pytest.raises(AssertionError, match=r"the checks took longer than 0\.2 s"):
        check_environment(Slow, timeout_s=0.2)


class Leaving(Sums):
    """Leaves a task if its setup is cancelled while it waits."""

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.left.add(asyncio.create_task(self.wait_forever()))
            raise
        return await super().setup(task, ctx)

    async def wait_forever(self) -> None:
        await asyncio.Event().wait()


class Hurried(Sums):
    """Has a teardown that fails if setup has begun and did not finish."""

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        ctx.state.begun = True
        await asyncio.sleep(0)
        ctx.state.begun = False
        return await super().setup(task, ctx)

    async def teardown(self, ctx: Context) -> None:
        if ctx.state.begun:
            raise RuntimeError("not set up")


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (Leaving, r"near \['LINE \(Leaving\.setup\)'\]: LINE \(Leaving\.wait_forever\)$"),
        (Hurried, r"near LINE \(Hurried\.setup\), after 0 moments ended with EnvError: .*not set up \(LINE\)$"),
    ],
)
def test_a_failure_after_a_cancellation_names_the_authors_lines(env: type[Env], says: str) -> None:
    with pytest.raises(AssertionError, match=says.replace("LINE", r"test_testing\.py:\d+")):
        asyncio.run(check_cancellation(env))


class Blocking(Sums):
    """Blocks the event loop in its oracle."""

    unblocked = threading.Event()

    def oracle(self, task: Task) -> Policy:
        self.unblocked.wait()
        return super().oracle(task)


@pytest.mark.timeout(30)
def test_an_oracle_that_blocks_the_event_loop_ends_with_the_checks() -> None:
    with pytest.raises(AssertionError, match=r"took longer than 0\.2 s: .* blocked by oracle \(test_testing\.py:\d+\)"):
        check_environment(Blocking, timeout_s=0.2)
    Blocking.unblocked.set()


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
