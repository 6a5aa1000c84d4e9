"""The game is fair, its rewards mean what they say, and its own evidence holds. It has no tools: none can hang."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import gymnasium
import pytest
from agentrl_guess import GuessConfig, GuessEnv
from agentrl_guess.env import Game, read_guess
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

import agentrl.env
from agentrl.env import EnvDriver, Policy, Task, env_config, testing, text_of
from agentrl.errors import ConfigError


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    async with testing.no_leaks():
        yield


async def play(env: GuessEnv, task: Task, policy: Policy) -> dict[str, float | None]:
    """The value of each signal after an episode played by `policy`."""
    return testing.values(await testing.play_signals(env, task, policy))


async def tasks_of(driver: EnvDriver, split: str) -> list[Task]:
    return [await driver.task(split, index) for index in range(await driver.size(split) or 0)]


@pytest.mark.parametrize(("low", "high"), [(1, 5), (1, 10), (0, 7), (20, 100), (1, 1000)])
async def test_the_splits_share_no_game_and_together_hold_every_number_of_every_range(low: int, high: int) -> None:
    env = GuessEnv(low=low, high=high)
    train, test = [{t.data for t in await tasks_of(EnvDriver(env), split)} for split in ("train", "test")]
    assert not train & test
    assert train | test == {Game(end, n) for end in env.ends() for n in range(low, end + 1)}
    assert env.ends() == sorted(set(env.ends()))
    assert env.ends()[-1] == high
    assert len(env.ends()) <= 8
    assert low + (high - low) // 2 <= env.ends()[0]


@pytest.mark.parametrize(("high", "turns"), [(7, 3), (10, 4), (100, 7)])
async def test_the_oracle_finds_every_number_of_every_range(high: int, turns: int) -> None:
    env = GuessEnv(high=high, turns=turns)
    driver = EnvDriver(env)
    for task in [*await tasks_of(driver, "train"), *await tasks_of(driver, "test")]:
        values = await play(env, task, env.oracle(task))
        assert (values["found"] or 0) >= 0.5
        assert values["narrowed"] == 1.0


@pytest.mark.parametrize(("high", "turns"), [(7, 3), (10, 4), (100, 7)])
async def test_the_canaries_score_nothing(high: int, turns: int) -> None:
    env = GuessEnv(high=high, turns=turns)
    driver = EnvDriver(env)
    for task in [*await tasks_of(driver, "train"), *await tasks_of(driver, "test")]:
        for name, policy in env.canaries(task).items():
            assert await play(env, task, policy) == {"found": 0.0, "narrowed": 0.0}, (name, task)


@pytest.mark.parametrize("count", [1, 64, 1000])
async def test_episodes_at_once_do_not_touch_each_other(count: int) -> None:
    await testing.check_concurrent(GuessEnv, count)


async def test_interleaved_twins_see_the_same() -> None:
    first, *others = await testing.check_twins(GuessEnv)
    assert others == [first] * 3  # the games are a list: the seed of a run orders them elsewhere


async def test_an_episode_cancelled_wherever_it_waits_leaves_nothing() -> None:
    """That is while its tasks are loaded and while the model speaks: no code of the game waits."""
    cuts = [cut async for cut in testing.cancel_everywhere(GuessEnv, lambda env, task: env.canaries(task)["silence"])]
    assert testing.model_turns(cuts) == [1, 2, 3, 4, 5, 6]  # the reset, four turns, the signals
    assert {cut.passed for cut in cuts if not cut.is_models_turn} == {0}


async def test_an_earlier_find_pays_more() -> None:
    env, task = GuessEnv(), Task("t", Game(10, 3))
    paid = [(await play(env, task, [*["9"] * late, "3"]))["found"] for late in range(4)]
    assert paid == [1.0, 0.875, 0.75, 0.625]
    assert (await play(env, task, ["9"] * 4))["found"] == 0.0


@pytest.mark.parametrize(
    ("guesses", "ruled_out"),
    [
        (["8", "9", "what?", "2"], 5),  # 8, 9 and 10, then nothing new, nothing at all, 1 and 2
        (["1", "1", "0", "-5"], 1),
        (["99", "11", "", "10"], 1),
        (["5", "2", "4", "4"], 9),
    ],
)
async def test_a_guess_pays_for_the_numbers_it_rules_out(guesses: list[str], ruled_out: int) -> None:
    values = await play(GuessEnv(), Task("t", Game(10, 3)), guesses)
    assert values == {"found": 0.0, "narrowed": pytest.approx(ruled_out / 9)}


async def test_the_answers() -> None:
    driver = EnvDriver(GuessEnv())
    await driver.reset(Task("t", Game(10, 5)))
    said = [(await driver.step(guess)).messages for guess in ("3", "I say 8!", "hm")]
    assert [text_of(messages[0]) for messages in said] == [
        "It is higher than 3. Guess again. Answer with one number only.",
        "It is lower than 8. Guess again. Answer with one number only.",
        "I cannot find a number. Answer with one number only.",
    ]
    assert (await driver.step("5")).done
    await driver.close()


@pytest.mark.parametrize(
    ("text", "guess"),
    [
        ("7", 7),
        ("My guess is 7.", 7),
        ("7, so 7", 7),
        ("-3", -3),
        ("7 or 8", None),
        ("1 2 3 4 5 6 7 8 9 10", None),
        ("seven", None),
        ("", None),
        ("3.5", None),
        ("9" * 5000, None),
        ("3-3", 3),
        ("3 -3", None),
        ("(-3).", -3),
        ("5.", 5),
        (".5 3.5 1.2.3 7", 7),
        ("__import__('os').getpid()", None),
    ],
)
def test_what_counts_as_a_guess(text: str, guess: int | None) -> None:
    assert read_guess(text) == guess


@settings(deadline=None)
@given(st.text())
def test_no_text_breaks_the_reading_of_a_guess(text: str) -> None:
    assert read_guess(text) is None or isinstance(read_guess(text), int)


def test_a_range_that_cannot_be_split_is_refused() -> None:
    with pytest.raises(ConfigError, match="high must be at least low"):
        env_config(GuessEnv, {"low": 5, "high": 6})
    assert env_config(GuessEnv, {"high": "30"}) == GuessConfig(high=30)


def test_the_game_keeps_its_promises() -> None:
    testing.check_environment(GuessEnv)


def test_a_model_that_does_not_guess_earns_nothing() -> None:
    trajectory = testing.rehearse(GuessEnv(turns=4), ["Let me think."] * 4)
    assert (trajectory.turns, trajectory.reward) == (4, 0.0)


@pytest.mark.parametrize("turns", [1, 4])
def test_gymnasium_accepts_it(turns: int) -> None:
    check_env(gymnasium.make("agentrl/guess-v0", turns=turns).unwrapped)


def test_the_readme_runs() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(snippet, "README.md", "exec"), {})  # noqa: S102
    assert "guess" in agentrl.env.announced()
