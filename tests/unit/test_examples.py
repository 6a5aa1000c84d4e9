"""Each file in examples/ works: gymnasium accepts its environment, it can be played, its settings are valid."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env

import agentrl
from agentrl.engine.scripted import ScriptedEngine
from agentrl.env import EnvDriver, GymnasiumEnv, Message, Policy, StopReason, Task, resolve, text_of
from agentrl.env import play as play_episodes
from agentrl.plugins.files import load_file
from agentrl.rollout.worker import RolloutWorker
from agentrl.types import FunctionCall, SampleId, Trajectory
from tests.unit.rollout.cases import Listening, check_law_1, request
from tests.unit.rollout.templates import encode, tokenizer

EXAMPLES = Path(__file__).parents[2] / "examples"
COIN, COUNTDOWN, SCRIPT = (str(EXAMPLES / name) for name in ("coin.py", "countdown_env.py", "train_from_python.py"))
ELSEWHERE = dict.fromkeys(("functions_agent.py", "calculator_agent.py"), "tests/agents/test_example.py")
"""Examples that need more than the tests here have, with their own tests."""
Play = Callable[..., Any]


@pytest.fixture
async def play(tmp_path: Path) -> AsyncIterator[Play]:
    """Plays one episode of an env through a worker, the assistant saying what the script says."""
    tokenizer().save_pretrained(tmp_path)
    workers: list[RolloutWorker] = []

    async def one(env: str, script: Sequence[str], index: int = 0, **options: Any) -> Trajectory:
        engine = Listening(
            await ScriptedEngine.ready(script, encode=lambda text: encode(tokenizer(), text), vocab_size=320)
        )
        workers.append(RolloutWorker(env, options, str(tmp_path), engine, max_context=4000))
        trajectory = await workers[-1].run(request(sample=SampleId(index, 0), task_index=index, max_tokens=200))
        check_law_1(trajectory, engine.calls)
        return trajectory

    yield one
    for worker in workers:
        await worker.close()


async def score(driver: EnvDriver, task: Task, policy: Policy) -> float:
    """The weighted sum of an episode played by `policy`, without an engine."""
    await driver.reset(task)
    for turn in range(driver.max_turns):
        done = callable(policy) or turn < len(policy)
        action = "" if not done else policy(list(driver.ctx.messages)) if callable(policy) else policy[turn]
        if (await driver.step(action)).done:
            break
    signals = await driver.finish(StopReason.ENV_DONE)
    await driver.close()
    return sum(s.weight * s.value for s in signals if s.value is not None)


def as_text(message: Message | str) -> str:
    """A turn as a model would write it."""
    if isinstance(message, str):
        return message
    calls = [f"<tool_call>{json.dumps(call['function'])}</tool_call>" for call in message.get("tool_calls", [])]
    return text_of(message) + "".join(calls)


def test_every_example_is_tested_here() -> None:
    here = {Path(path).name for path in (COIN, COUNTDOWN, SCRIPT)}
    assert {path.name for path in EXAMPLES.glob("*.py")} == here | set(ELSEWHERE)
    assert all(name in (EXAMPLES.parent / tests).read_text() for name, tests in ELSEWHERE.items())


@pytest.mark.parametrize("path", [COIN, COUNTDOWN], ids=["coin", "countdown"])
def test_gymnasium_accepts_it(path: str) -> None:
    env = GymnasiumEnv(resolve(path)())
    check_env(env, skip_render_check=True)
    env.close()


@pytest.mark.parametrize("heads", [0.0, 1.0])
async def test_calling_the_side_that_always_comes_always_pays(play: Play, heads: float) -> None:
    side = "heads" if heads else "tails"
    right, wrong = await play(COIN, [f"{side.title()}."], heads=heads), await play(COIN, ["I pass"], heads=heads)
    assert (right.reward, wrong.reward) == (1.0, 0.0)
    assert right.stop_reason == wrong.stop_reason == StopReason.ENV_DONE


async def test_the_coin_falls_as_often_as_it_is_told_to() -> None:
    driver = EnvDriver(resolve(COIN)(heads=0.8))
    sides = [(await driver.task("train", index)).data for index in range(1000)]
    assert 750 < sides.count("heads") < 850


@pytest.mark.parametrize("numbers", [2, 3, 5])
async def test_the_solution_of_a_countdown_is_worth_one_through_the_engine(play: Play, numbers: int) -> None:
    env = resolve(COUNTDOWN)(numbers=numbers)
    for index in (0, 7):
        task = await EnvDriver(env).task("train", index)
        turns = env.oracle(task)
        assert not callable(turns)
        trajectory = await play(COUNTDOWN, [as_text(turn) for turn in turns], index, numbers=numbers)
        assert (trajectory.stop_reason, trajectory.turns) == (StopReason.ENV_DONE, numbers - 1)
        assert {s.name: s.value for s in trajectory.signals} == {"solved": 1.0, "legal": 1.0}
        assert trajectory.task_id == task.id


async def test_the_canaries_of_countdown_solve_nothing() -> None:
    env = resolve(COUNTDOWN)()
    driver = EnvDriver(env)
    for index in range(await driver.size("test") or 0):
        task = await driver.task("test", index)
        assert await score(driver, task, env.oracle(task)) == pytest.approx(1.2)
        assert {name: await score(driver, task, p) for name, p in env.canaries(task).items()} == dict.fromkeys(
            env.canaries(task), 0.0
        )


async def test_training_never_shows_a_held_out_countdown() -> None:
    driver = EnvDriver(resolve(COUNTDOWN)(numbers=2))
    held_out = {(await driver.task("test", index)).id for index in range(await driver.size("test") or 0)}
    assert held_out.isdisjoint([(await driver.task("train", index)).id for index in range(2000)])


async def test_a_refused_call_takes_no_number_away_and_says_why() -> None:
    driver = EnvDriver(resolve(COUNTDOWN)())
    await driver.reset(replace(await driver.task("train", 0), data=SimpleNamespace(numbers=(7, 5, 2), target=0)))
    assert await said(driver, 7, "+", 99) == "error: ValueError: you do not have 99; you have 7, 5 and 2"
    assert await said(driver, 7, "+", 7) == "error: ValueError: you do not have 7; you have 7, 5 and 2"
    assert await said(driver, 7, "-", 5) == "You have 2 and 2."
    assert await said(driver, 2, "*", 2) == "You have 4."
    await driver.close()


async def said(driver: EnvDriver, first: int, operator: str, second: int) -> str:
    """What the tool answers to one call."""
    call = FunctionCall(name="combine", arguments={"first": first, "operator": operator, "second": second})
    turn = Message(role="assistant", content="", tool_calls=[{"function": call}])
    return text_of((await driver.step(turn)).messages[0])


def test_the_script_asks_for_a_run_in_its_own_environment() -> None:
    script = load_file(Path(SCRIPT))
    config = agentrl.load_config(**script.settings(["--steps", "3", "--digits", "1"]))
    assert config.env[0].name == f"{SCRIPT}:Parity"
    assert (config.steps, config.env[0].options, config.model.name, config.out) == (3, {"digits": 1}, "", None)
    [right], [wrong] = (play_episodes(script.Parity(digits=1), [f"It is {answer}."]) for answer in ("odd", "even"))
    assert {right.signals[0].value, wrong.signals[0].value} == {0.0, 1.0}


def test_the_script_has_help_and_refuses_what_it_does_not_know() -> None:
    command = [sys.executable, SCRIPT]
    shown = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=60)
    assert (shown.returncode, "--digits" in shown.stdout) == (0, True)
    refused = subprocess.run(
        [*command, "--digits", "11", "--out", "/proc/none"], capture_output=True, text=True, timeout=60
    )
    assert refused.returncode == 1
    assert "ConfigError: cannot write /proc/none: No such file or directory" in refused.stderr
