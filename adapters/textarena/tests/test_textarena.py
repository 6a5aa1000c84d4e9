"""Games for one player are played by their own rules, and their randomness is theirs alone."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("textarena", reason="textarena is not installed: pip install 'textarena>=0.7.4'")

from agentrl_textarena.game import Game

from agentrl.env import Env, Message, StopReason, make_env, play, resolve, role, testing, text_of
from agentrl.errors import ConfigError, UnknownNameError

pytestmark = pytest.mark.timeout(180)
GUESSES = ["[1 2 3 4]", "2 3 4 5", "[3 4 5 6]"]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    testing.close_shared_sync()


def mastermind() -> Env:
    return make_env("textarena:Mastermind-v0", turns=3)


def test_a_game_is_played_in_messages_and_pays_its_own_reward() -> None:
    [episode] = play(mastermind(), ["[1 1 1 1]", "[1 2]"])
    assert "You are playing Mastermind" in text_of(episode.messages[0])
    assert "invalid move" in text_of(episode.messages[2])
    assert "[1 1 1 1]" not in text_of(episode.messages[2])
    assert (episode.stop_reason, episode.reward) == (StopReason.ENV_DONE, 0.0)


def test_the_code_of_mastermind_is_found() -> None:
    code = Game("Mastermind-v0", 1, {})._game.env.state.game_state["secret_code"]
    found = testing.rehearse(mastermind(), ["[6 5 4 3]", " ".join(map(str, code))], split="test", timeout_s=60)
    assert (found.reward, found.stop_reason, found.turns) == (1.0, StopReason.ENV_DONE, 2)
    assert "black peg" in text_of(found.messages[2])


def test_a_game_that_is_nearly_won_earns_a_part_and_is_no_success() -> None:
    env = make_env("textarena:Mastermind-v0", turns=30)
    [episode] = play(env, ["[1 2 3 4]"] * 30)
    code = Game("Mastermind-v0", episode.task.data, {})._game.env.state.game_state["secret_code"]
    other = next(digit for digit in range(1, 7) if digit not in code)
    for guess, reward, success in (([*code[:-1], other], 0.75, 0), (code, 1, 1)):
        [found] = play(env, [f"[{' '.join(map(str, guess))}]"] * 30)
        assert found.success is not None
        assert (found.reward, found.success.value) == (reward, success)


def test_an_unfinished_game_pays_nothing() -> None:
    trajectory = testing.rehearse(mastermind(), GUESSES, timeout_s=60)
    assert (trajectory.reward, trajectory.stop_reason) == (0.0, StopReason.MAX_TURNS)


@pytest.mark.parametrize(
    ("name", "moves"),
    [
        ("2048-v0-super-easy", ["[up]", "[left]", "[0]", "[right]", "[down]", "[up]"]),
        ("FrozenLake-v0-random", ["[down]", "[right]", "[down]", "[right]", "[down]", "[right]"]),
    ],
)
async def test_a_game_is_the_same_for_twins_and_alone_or_among_others(name: str, moves: list[str]) -> None:
    def make() -> Env:
        return make_env(f"textarena:{name}", turns=6)

    await testing.check_twins(make, lambda *_: moves)
    await testing.check_concurrent(make, 24, policies=lambda *_: [moves, moves[::-1], [""] * 6])


def test_a_game_leaves_the_random_numbers_of_the_process_alone_and_they_leave_it() -> None:
    def boards(disturb: bool) -> list[str]:
        game, said = Game("2048-v0", 5, {}), []
        for move in ("[up]", "[left]", "[up]", "[left]"):
            if disturb:
                random.random()
            game.move(move)
            said.append(game.text)
        return said

    random.seed(1)
    expected = random.Random(1).random()
    quiet = boards(disturb=False)
    assert random.random() == expected
    assert boards(disturb=True) == quiet


async def test_an_episode_cancelled_wherever_it_waits_leaves_nothing() -> None:
    assert [cut async for cut in testing.cancel_everywhere(mastermind, lambda *_: GUESSES)]


CROSS_WINS = ["[0]", "I take [3]", "[1]", "[4]", "[2]"]


def test_in_self_play_each_player_has_its_own_conversation_and_reward() -> None:
    trajectory = testing.rehearse(make_env("textarena:TicTacToe-v0"), CROSS_WINS, timeout_s=150)
    assert (trajectory.error, trajectory.stop_reason, trajectory.turns) == ("", StopReason.AGENT_DONE, 5)
    assert {signal.agent: signal.value for signal in trajectory.signals} == {"player 0": 1.0, "player 1": -1.0}
    assert [{s.agent for s in one.segments if s.is_action} for one in trajectory.sequences] == [
        {"player 0"},
        {"player 1"},
    ]
    heard = [message for message in trajectory.messages if message["role"] == "user"]
    assert "You are Player 1" in text_of(heard[1])
    assert "[Player 1] I take [3]" in text_of(heard[2])


def test_a_player_that_breaks_the_rules_loses_and_an_unfinished_game_pays_nobody() -> None:
    broken = testing.rehearse(make_env("textarena:TicTacToe-v0"), ["[0]", "[0]", "[0]"], timeout_s=150)
    values = {signal.agent: signal.value for signal in broken.signals}
    assert values["player 1"] < 0 <= values["player 0"]
    short = testing.rehearse(make_env("textarena:TicTacToe-v0", turns=3), CROSS_WINS, timeout_s=150)
    assert [signal.value for signal in short.signals] == [0.0, 0.0]
    assert short.is_valid


@pytest.mark.parametrize("name", ["TicTacToe-v0", "Mastermind-v0", "Nim-v0"])
def test_a_move_on_which_the_game_fails_is_one_that_it_does_not_allow(name: str) -> None:
    move = f"[{'9' * 5000} {'9' * 5000}]"
    trajectory = testing.rehearse(make_env(f"textarena:{name}"), [move, move], timeout_s=150)
    assert (trajectory.error, trajectory.is_valid, trajectory.turns) == ("", True, 2)
    assert trajectory.reward <= 0


def test_self_play_is_solved_by_a_game_that_is_played_out_by_the_rules() -> None:
    def success(name: str, moves: list[str], **options: int) -> bool:
        [episode] = play(make_env(f"textarena:TicTacToe-v0{name}", **options), moves)
        assert episode.success is not None
        return bool(episode.success.value)

    assert success("", CROSS_WINS)
    assert not success("", ["[0]", "[0]", "[0]"])
    assert not success("", CROSS_WINS, turns=3)
    # The first seat of task 0 is the policy's. The stand-in for the opponent takes the last free square.
    assert success("+opponent", ["[0]", "[1]", "[2]"])
    assert not success("+opponent", ["[0]", "[0]", "[0]"])


@pytest.mark.parametrize(("index", "seat"), [(0, "player 0"), (1, "player 1")])
def test_an_opponent_has_the_other_seat_and_is_not_trained(index: int, seat: str) -> None:
    replies = iter(CROSS_WINS[1 - index :: 2])

    class Played(resolve("textarena:TicTacToe-v0+opponent")):  # type: ignore[misc]
        @role
        def opponent(self, messages: list[Message]) -> str:
            return next(replies)

    # The seeds of "test" are 1, 3, ...: half of the seed chooses the seat of the policy.
    trajectory = testing.rehearse(Played(), CROSS_WINS[index::2], index=index, split="test", timeout_s=60)
    assert [(signal.agent, signal.value) for signal in trajectory.signals] == [(seat, 1.0 if index == 0 else -1.0)]
    assert {segment.agent for segment in trajectory.segments if segment.is_action} == {seat}
    assert len(trajectory.sequences) == 1
    assert trajectory.roles["opponent"].calls == len(CROSS_WINS[1 - index :: 2])


async def test_games_for_two_are_the_same_for_twins_and_alone_or_among_others() -> None:
    def make() -> Env:
        return make_env("textarena:KuhnPoker-v0", turns=6)

    moves = ["[bet]", "[call]"] * 3
    await testing.check_twins(make, lambda *_: moves)
    await testing.check_concurrent(make, 12, policies=lambda *_: [moves, ["[check]"] * 6, [""] * 6])


def test_what_cannot_be_played_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"textarena:Mastermind-v0.opponent: Mastermind-v0 is for one player"):
        resolve("textarena:Mastermind-v0+opponent")
    with pytest.raises(UnknownNameError, match=r"unknown suffix of a game of TextArena 'friend'.*Known: opponent"):
        resolve("textarena:TicTacToe-v0+friend")
    with pytest.raises(UnknownNameError, match="Did you mean 'opponent'"):
        resolve("textarena:TicTacToe-v0+oponent")
    with pytest.raises(UnknownNameError, match=r"unknown game of TextArena 'TicTacTo-v0'.*Did you mean 'TicTacToe-v0'"):
        resolve("textarena:TicTacTo-v0+opponent")
    with pytest.raises(UnknownNameError, match=r"unknown game of TextArena .*Did you mean 'Mastermind-v0'"):
        resolve("textarena:Mastermnd-v0")


def test_settings_of_a_game_are_keys() -> None:
    [episode] = play(make_env("textarena:Mastermind-v0", code_length=3), ["[1 2 3]"] * 30)
    assert "3 digits long" in text_of(episode.messages[0])
    with pytest.raises(ConfigError, match=r"code_lenght.*code_length"):
        make_env("textarena:Mastermind-v0", code_lenght=3)
    assert resolve("textarena:Mastermind-v0@0.7") is resolve("textarena:Mastermind-v0")


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("Mastermind-v0", {"code_length": -3}, r"--env.code_length -3: Sample larger than population"),
        ("Mastermind-v0", {"code_length": 4, "num_numbers": 1}, r"--env.code_length 4, --env.num_numbers 1: Sample"),
        ("Othello-v0", {"board_size": -3}, r"textarena:Othello-v0 cannot begin with --env.board_size -3: .*even"),
        ("Othello-v0+opponent", {"board_size": -3}, r"--env.board_size -3"),
    ],
)
def test_settings_that_a_game_cannot_begin_with_are_refused_before_a_run(
    name: str, settings: dict[str, int], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        make_env(f"textarena:{name}", **settings).preflight()
    make_env(f"textarena:{name}").preflight()


def test_a_limit_of_turns_is_at_least_one() -> None:
    for turns in (0, -1):
        with pytest.raises(ConfigError, match=r"max_turns.*greater than or equal to 1"):
            make_env("textarena:Mastermind-v0", max_turns=turns)


def test_the_readme_runs() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(snippet, "README.md", "exec"), {})  # noqa: S102
