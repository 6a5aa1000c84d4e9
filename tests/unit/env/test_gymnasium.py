"""`GymnasiumEnv` makes a valid gymnasium.Env of every environment, and `gymnasium.make` returns it."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import agentrl.env
from agentrl.env import GymnasiumEnv
from agentrl.errors import ConfigError, EnvError, VerifierError
from tests.unit.env.worlds import Desk, Echo, Inline, Talk


class Judge(Echo):
    def score(self, ctx) -> float:
        raise RuntimeError("verifier down")


@pytest.fixture(params=[Echo, Inline, Talk, Desk])
def made(request: pytest.FixtureRequest):
    """Each world, made through gymnasium.make with a registered spec."""
    env_id = f"agentrl-tests/{request.param.__name__}-v0"
    if env_id not in gymnasium.registry:
        gymnasium.register(env_id, entry_point=lambda **options: GymnasiumEnv(request.param(**options)))
    env = gymnasium.make(env_id)
    yield env
    env.close()


def test_check_env_accepts_every_kind_of_env(made: gymnasium.Env) -> None:
    check_env(made.unwrapped)


def test_check_env_accepts_every_announced_env() -> None:
    assert "guess" in agentrl.env.announced()
    for name in agentrl.env.announced():
        env = gymnasium.make(f"agentrl/{name}-v0").unwrapped
        assert isinstance(env, GymnasiumEnv)
        check_env(env)


def test_a_one_turn_env_terminates_and_pays() -> None:
    env = GymnasiumEnv(Echo())
    env.reset(seed=1, options={"index": 4})
    observation, reward, terminated, truncated, info = env.step("4")
    assert (observation, reward, terminated, truncated) == ([], 1.0, True, False)
    assert [s.name for s in info["signals"]] == ["right"]
    with pytest.raises(agentrl.errors.EnvError, match="no episode is running"):
        env.step("4")


def test_turn_rewards_are_paid_once_and_at_their_turn() -> None:
    env = GymnasiumEnv(Talk())
    env.reset(seed=1)
    rewards = [env.step("long answer" if turn == 1 else "ok")[1] for turn in range(4)]
    assert rewards == [0.5, 0.0, 0.5, 0.5 + 4.0]


def test_the_turn_limit_truncates() -> None:
    env = GymnasiumEnv(Desk())
    env.reset(seed=1)
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": {"n": 1}}}]}
    ends = [env.step(call)[2:4] for _ in range(8)]
    assert ends == [(False, False)] * 7 + [(False, True)]


def test_an_invalid_signal_raises_and_is_never_a_reward_of_zero() -> None:
    env = GymnasiumEnv(Judge())
    env.reset(seed=1)
    with pytest.raises(VerifierError, match="verifier down"):
        env.step("x")


def test_seeded_runs_are_equal_and_other_seeds_differ() -> None:
    def play(seed: int) -> list[object]:
        env = GymnasiumEnv(Talk())
        return [env.reset(seed=seed), *(env.step("a")[0] for _ in range(3))]

    assert play(7) == play(7)
    assert play(7) != play(8)


async def test_the_synchronous_interface_works_inside_a_running_loop() -> None:
    env = GymnasiumEnv(Talk())
    assert asyncio.get_running_loop().is_running()
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    assert env.step("a")[2] is False
    env.close()


@pytest.mark.parametrize("action", [5, {"role": "user", "content": "x"}, None])
def test_an_action_that_is_no_turn_of_the_assistant_is_rejected(action: object) -> None:
    env = GymnasiumEnv(Echo())
    env.reset(seed=1)
    with pytest.raises(EnvError, match=r"step takes text or an assistant message, not "):
        env.step(action)  # type: ignore[arg-type]
    env.close()


def test_two_around_one_object_are_rejected() -> None:
    shared = Echo()
    first = GymnasiumEnv(shared)
    with pytest.raises(EnvError, match=r"this Echo object has a GymnasiumEnv already; .* make another Echo\(\)"):
        gymnasium.vector.SyncVectorEnv([lambda: GymnasiumEnv(shared)] * 2)
    first.close()
    assert GymnasiumEnv(shared).env is shared


def test_unknown_options_and_splits_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"unknown option of reset 'idx'.*'index'.*Known: index, member, split"):
        GymnasiumEnv(Echo()).reset(options={"idx": 3})
    with pytest.raises(ConfigError, match=r"unknown split 'val'.*Known: test, train"):
        GymnasiumEnv(Echo(), split="val")
    with pytest.raises(ConfigError, match=r"unknown split 'val'"):
        GymnasiumEnv(Echo()).reset(options={"split": "val"})
    with pytest.raises(ConfigError, match="index must be the position of a task, a whole number, got ''"):
        GymnasiumEnv(Echo()).reset(options={"index": ""})


def test_gymnasium_imports_the_registration_by_itself() -> None:
    code = "import gymnasium\nprint(gymnasium.make('agentrl.env:agentrl/guess-v0', high=20).reset(seed=0)[1]['split'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "train\n", done.stderr


def test_spaces_hold_their_own_samples() -> None:
    env = GymnasiumEnv(Echo())
    assert env.observation_space.contains(env.observation_space.sample())
    assert env.action_space.contains(env.action_space.sample())
    assert env.action_space.contains({"role": "assistant", "content": "x"})
    assert not env.action_space.contains({"role": "user", "content": "x"})
