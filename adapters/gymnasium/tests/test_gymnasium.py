"""Games of Gymnasium are played in text or with a tool, by their own rules, and what cannot be is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest
from agentrl_gymnasium.env import named_last
from agentrl_gymnasium.games import uncoloured

from agentrl.env import Env, StopReason, make_env, play, resolve, testing, text_of
from agentrl.errors import ConfigError, UnknownNameError

FIRM = {"is_slippery": False}
PLAYABLE = [
    "Blackjack-v1", "CliffWalking-v1", "CliffWalkingSlippery-v1", "FrozenLake-v1", "FrozenLake8x8-v1", "Taxi-v4",
]  # fmt: skip
LAKE = {"left": 0, "down": 1, "right": 2, "up": 3}


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    testing.close_shared_sync()


@pytest.mark.parametrize("tool", [False, True])
def test_a_lake_keeps_the_promises_of_an_environment(tool: bool) -> None:
    testing.check_environment(lambda: make_env("gym:FrozenLake-v1", tool=tool, turns=10, **FIRM), tasks=2, episodes=8)


@pytest.mark.parametrize("name", PLAYABLE)
async def test_every_game_in_text_is_the_same_for_twins_and_alone_or_among_others(name: str) -> None:
    def make() -> Env:
        return make_env(f"gym:{name}", turns=6, unreadable=-0.5)

    def policies(*_: object) -> list[list[str]]:
        return [["1"] * 6, ["0"] * 6, [""] * 6]

    await testing.check_twins(make, lambda *_: ["1", "0", "1", "0", "1", "0"])
    await testing.check_concurrent(make, 64, policies)


@pytest.mark.parametrize(
    ("name", "earned"), [("CliffWalking-v1", -13.0), ("FrozenLake-v1", 1.0), ("FrozenLake8x8-v1", 1.0)]
)
def test_the_oracle_plays_the_best_game(name: str, earned: float) -> None:
    env = make_env(f"gym:{name}", **FIRM)
    [episode] = play(env, [""])
    policies = env.oracle(episode.task), *env.canaries(episode.task).values()
    best, *rest = (one.reward for one in play(env, *policies))
    assert best == earned
    assert max(rest) == -30.0


@pytest.mark.parametrize("tool", [False, True])
@pytest.mark.parametrize(
    "name", ["FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "CliffWalkingSlippery-v1", "Taxi-v4"]
)
async def test_the_oracle_knows_how_the_ice_will_slip_and_solves_every_game(name: str, tool: bool) -> None:
    await testing.check_oracle(lambda: make_env(f"gym:{name}", tool=tool, turns=60), tasks=8)


def test_a_game_is_solved_by_its_best_end_alone() -> None:
    firm = make_env("gym:FrozenLake-v1", **FIRM)
    cliff, cards = make_env("gym:CliffWalking-v1"), make_env("gym:Blackjack-v1")

    def success(env: Env, turns: list[str], seed: int = 1) -> tuple[float, bool]:
        [episode] = play(env, turns, split="test", index=seed // 2)
        assert episode.success is not None
        return episode.reward, bool(episode.success.value)

    assert success(firm, ["right", "down"]) == (0.0, False)  # a hole
    assert success(firm, ["left"] * 30) == (0.0, False)  # unfinished
    assert success(firm, ["down", "down", "right", "right", "down", "right"]) == (1.0, True)
    assert success(cliff, ["right"] + ["up"] * 29) == (-129.0, False)
    assert success(cliff, ["up", *["right"] * 11, "down"]) == (-13.0, True)
    for index in range(20):
        reward, solved = success(cards, ["stick"], seed=2 * index + 1)
        assert solved == (reward > 0)


def test_the_return_is_that_of_the_game_itself() -> None:
    turns = ["south", "west", "north", "pickup", "east", "5"]
    [episode] = play(make_env("gym:Taxi-v4", turns=6), turns, split="test", index=3)
    game = gymnasium.make("Taxi-v4")
    game.reset(seed=7)
    assert episode.task.data == 7
    assert episode.reward == sum(float(game.step(action)[1]) for action in (0, 3, 1, 4, 2, 5))


def test_a_turn_without_an_action_costs_and_the_game_waits() -> None:
    for tool in (False, True):
        trajectory = testing.rehearse(make_env("gym:FrozenLake-v1", tool=tool, turns=3, unreadable=-0.25), ["Hm."] * 3)
        assert (trajectory.reward, trajectory.stop_reason) == (-0.75, StopReason.MAX_TURNS)
        assert "I cannot find an action" in text_of(trajectory.messages[2])


def test_the_tool_acts_in_order_and_a_wrong_call_is_told() -> None:
    env = make_env("gym:FrozenLake-v1", tool=True, turns=2, **FIRM)
    both = testing.tool_call("act", action="right") + testing.tool_call("act", action="down")
    trajectory = testing.rehearse(env, [both, testing.tool_call("act", action="jump")])
    drawn = [text_of(message) for message in trajectory.messages if message["role"] == "tool"]
    assert ["S[F]FF" in drawn[0], "F[H]FH" in drawn[1]] == [True, True]
    assert (trajectory.turns, trajectory.reward) == (1, 0.0)
    wrong = testing.rehearse(env, [testing.tool_call("act", action="jump")] * 2)
    assert "unknown action; use one of: left, down, right, up" in text_of(wrong.messages[2])
    assert wrong.reward == -2.0


def test_blackjack_names_its_numbers() -> None:
    [episode] = play(make_env("gym:Blackjack-v1"), ["stick"], split="test")
    assert re.search(r"your sum: \d+\nthe dealer's card: \d+\nusable ace: [01]$", text_of(episode.messages[0]))
    assert episode.reward in (-1.0, 0.0, 1.0)
    assert make_env("gym:Blackjack-v1").oracle(episode.task) is None


def test_colours_become_brackets() -> None:
    assert uncoloured("\x1b[41mS\x1b[0mF\x1b[34;1mR\x1b[0m\x1b[35mB\x1b[0m\x1b[43m \x1b[0m") == "[S]F(R){B}[ ]"


@pytest.mark.parametrize(
    ("text", "name"),
    [("down", "down"), ("I go LEFT, no: right.", "right"), ("2", "right"), ("", None), ("4", None), ("download", None)],
)
def test_the_last_action_in_a_text_counts(text: str, name: str | None) -> None:
    assert named_last(text, LAKE) == name


def test_what_text_cannot_play_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"gym:CartPole-v1 cannot be played in text: its observations are Box"):
        resolve("gym:CartPole-v1")
    with pytest.raises(ConfigError, match=r"gym:Pendulum-v1 cannot be played in text: its actions are Box"):
        resolve("gym:Pendulum-v1")
    with pytest.raises(
        UnknownNameError, match=r"unknown environment of Gymnasium 'FrozenLak-v1'\. Did you mean 'FrozenLake-v1'"
    ):
        resolve("gym:FrozenLak-v1")


def test_arguments_of_a_game_are_keys() -> None:
    with pytest.raises(ConfigError, match=r"is_slipery.*is_slippery"):
        make_env("gym:FrozenLake-v1", is_slipery=False)
    assert resolve("gym:FrozenLake-v1").wraps == ("gymnasium",)
    with pytest.raises(ConfigError, match=r"gymnasium \d.* is installed"):
        resolve("gym:FrozenLake-v1@0.26")


def test_the_readme_runs() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(snippet, "README.md", "exec"), {})  # noqa: S102
