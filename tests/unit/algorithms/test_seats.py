"""Rewards of one agent credit that agent's tokens only; rewards of all agents credit everybody's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentrl.algorithms import algorithms
from agentrl.algorithms.credit import token_returns
from agentrl.algorithms.driver import assign
from agentrl.algorithms.sample import Sample, samples_of
from agentrl.env import AgentEnv, Context, Model, Task
from agentrl.env.testing import rehearse
from agentrl.rollout.faults import SampleFault, fault_of
from agentrl.types import Signal, StopReason, TokenSequence, Trajectory
from tests.unit.algorithms.cases import algorithm, by_turn, group, trajectory

SEATS = ("white", "black", "white", "black")
NAMES = sorted(name for name, cls in algorithms().items() if not cls.needs.columns)


def game(member: int, *signals: Signal, reward: float = 0.0) -> Trajectory:
    """Two seats take turns, two tokens each."""
    played = trajectory(member, reward, lengths=(2,) * len(SEATS), agents=SEATS)
    return replace(played, signals=(*played.signals, *signals))


@pytest.mark.parametrize("name", NAMES)
def test_the_reward_of_a_seat_moves_that_seat_only(name: str) -> None:
    won = game(0, Signal("win", 1.0, agent="white"))
    lost = game(1, Signal("win", 0.0, agent="white"))
    winner, loser = by_turn(algorithm(name), group(won, lost))
    white, black = ([w - v for w, v in zip(winner[seat::2], loser[seat::2], strict=True)] for seat in (0, 1))
    assert min(white) > 0
    assert black == [0.0, 0.0]


@pytest.mark.parametrize("name", NAMES)
def test_opposite_rewards_of_two_seats_give_opposite_credit(name: str) -> None:
    def ended(member: int, white: float) -> Trajectory:
        return game(member, Signal("w", white, agent="white"), Signal("b", -white, agent="black"))

    first, second = by_turn(algorithm(name), group(ended(0, 1.0), ended(1, -1.0), greedy=ended(2, 0.0)))
    assert first[0] > 0 > first[1]
    assert first == pytest.approx([-value for value in second])


@pytest.mark.parametrize("name", sorted({*NAMES} - {"reinforce++"}))  # its baseline is the mean of all tokens
def test_what_was_earned_before_a_seat_has_spoken_is_not_its_own(name: str) -> None:
    shared = [game(member, Signal("opening", float(member), scope="turn", turn=0)) for member in (0, 1)]
    for turns in by_turn(algorithm(name), group(*shared, greedy=game(2))):
        assert turns[1::2] == [0.0, 0.0]


@pytest.mark.parametrize("size", [1.0, 0.1])
@pytest.mark.parametrize("name", NAMES)
def test_the_scale_of_rewards_is_that_of_each_seat_not_of_their_sum(name: str, size: float) -> None:
    def ended(member: int, white: float, bonus: float) -> Trajectory:
        seats = Signal("w", size * white, agent="white"), Signal("b", -size * white, agent="black")
        return game(member, *seats, Signal("short", bonus))

    members = ended(0, 1.0, 1e-4), ended(1, -1.0, 0.0)
    scaled = by_turn(algorithm(name, normalize_rewards=True), group(*members, greedy=ended(2, 0.0, 0.0)))
    assert max(abs(value) for turns in scaled for value in turns) < 10


@pytest.mark.parametrize("keys", [{}, {"normalize_rewards": True}])
@pytest.mark.parametrize("name", NAMES)
def test_rewards_that_differ_by_rounding_give_no_credit(name: str, keys: dict[str, bool]) -> None:
    def ended(member: int, *values: float) -> Trajectory:
        played = trajectory(member, 0.0)
        return replace(played, signals=tuple(Signal(f"s{n}", value) for n, value in enumerate(values)))

    members = ended(0, 0.1, 0.2, -0.3), ended(1, 0.3, -0.3)
    credit = by_turn(algorithm(name, **keys), group(*members, greedy=ended(2, 0.3, -0.3)))
    assert {value for turns in credit for value in turns} == {0.0}


@pytest.mark.parametrize("name", sorted({*NAMES} - {"gigpo"}))
def test_a_turn_reward_of_a_seat_credits_its_earlier_turns_and_nobody_else(name: str) -> None:
    scored = game(0, Signal("piece", 1.0, scope="turn", turn=2, agent="white"))
    winner, loser = by_turn(algorithm(name), group(scored, game(1)))
    assert [w > v for w, v in zip(winner, loser, strict=True)] == [True, False, True, False]
    early = game(0, Signal("piece", 1.0, scope="turn", turn=1, agent="white"))
    winner, loser = by_turn(algorithm(name), group(early, game(1)))
    assert [w > v for w, v in zip(winner, loser, strict=True)] == [True, False, False, False]


def test_a_shared_reward_reaches_both_seats_once() -> None:
    sample = Sample.of(game(0, Signal("piece", 4.0, scope="turn", turn=1), reward=1.0))
    assert token_returns(sample).tolist() == [5.0] * 4 + [1.0] * 4
    assert sum(sample.rewards()) == 2 * 5.0, "each seat finds the reward on its own tokens"


@pytest.mark.parametrize(
    ("signal", "reason"),
    [
        (Signal("win", 1.0, agent="red"), "win: the agent 'red' sampled no token that can earn this reward"),
        (
            Signal("piece", 1.0, scope="turn", turn=0, agent="black"),
            "piece: the agent 'black' sampled no token up to turn 0 that can earn this reward",
        ),
    ],
)
def test_a_sample_with_a_reward_that_no_token_earns_is_invalid(signal: Signal, reason: str) -> None:
    played = game(0, signal)
    assert not played.is_valid
    assert fault_of(played) == SampleFault("invalid", reason)
    assert game(0, replace(signal, weight=0.0)).is_trainable, "a signal that is only recorded needs no token"
    assert game(0, replace(signal, agent="white")).is_trainable


def test_the_tokens_of_a_seat_are_one_stream() -> None:
    sample = Sample.of(game(0))
    assert {seat: tokens.tolist() for seat, tokens in sample.streams().items()} == {
        "black": [2, 3, 6, 7],
        "white": [0, 1, 4, 5],
    }


def interleaved(played: Trajectory) -> Trajectory:
    """The same episode, in which the second and the fourth turn belong to a conversation beside the first."""
    [row] = played.sequences
    rows = [tuple(s for s in row.segments if s.turn % 2 == parity) for parity in (0, 1)]
    return replace(played, sequences=tuple(map(TokenSequence, rows)))


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        *((name, {}) for name in sorted(algorithms()) if name != "distillation"),
        *(("ppo", keys) for keys in ({"gamma": 0.9, "gae_lambda": 0.8}, {"bootstrap_truncated": True})),
    ],
)
def test_credit_follows_the_order_of_sampling_through_conversations_at_once(name: str, keys: dict[str, Any]) -> None:
    cls = algorithms()[name]
    rewards = ({1: 1.0, 2: -0.5}, {0: 0.25, 3: 2.0})
    lengths, stop = (1, 3, 2, 2), StopReason.MAX_TURNS
    plain = [trajectory(n, float(n), turns, lengths, stop_reason=stop) for n, turns in enumerate(rewards)]
    found = []
    for members in (plain, [interleaved(one) for one in plain]):
        [samples] = samples_of([group(*members, greedy=members[0])])
        for sample in samples:
            values = {0: 0.1, 1: -0.2, 2: 0.4, 3: 0.3}
            sample.columns |= {column: sample.by_token(values) for column in cls.needs.columns}
        assign(algorithm(name, **keys), [samples])
        found.append([{t: s.advantages[s.turns == t].tolist() for t in range(4)} for s in samples])
    assert found[0] == found[1]


def test_a_seat_that_sampled_nothing_has_no_stream() -> None:
    assert list(Sample.of(trajectory(0, 0.0, lengths=(1, 0), agents=("white", "black"))).streams()) == ["white"]


def test_a_turn_reward_of_0_for_a_turn_without_a_token_costs_nothing() -> None:
    played = trajectory(0, 1.0, lengths=(0, 3))
    empty = replace(played, signals=(*played.signals, Signal("step", 0.0, scope="turn", turn=0)))
    assert empty.is_valid
    assert not replace(empty, signals=(*played.signals, Signal("step", 1.0, scope="turn", turn=0))).is_valid


class Higher(AgentEnv):
    """Two seats say a number; the higher one takes what the lower one loses."""

    def tasks(self, split: str) -> list[Task]:
        return [Task(split, 0)]

    async def play(self, task: Task, ctx: Context, model: Model) -> list[int]:
        return [int(await model.ask("A number?", agent)) for agent in ("white", "black")]

    def score(self, ctx: Context) -> list[Signal]:
        white, black = ctx.result
        result = float(white > black) - float(white < black)
        return [Signal("game", result, agent="white"), Signal("game", -result, agent="black")]


@pytest.mark.parametrize("name", NAMES)
def test_self_play_of_a_zero_sum_game_credits_each_seat_with_its_own_result(name: str) -> None:
    numbers = (("9", "1"), ("2", "8"), ("5", "5"))
    white, black, drawn = (
        rehearse(Higher(), turns, member=member, timeout_s=100) for member, turns in enumerate(numbers)
    )
    assert [t.reward for t in (white, black, drawn)] == [0.0, 0.0, 0.0]
    won, lost = by_turn(algorithm(name), group(white, black, greedy=drawn))
    assert won[0] > 0 > won[1]
    assert lost[0] < 0 < lost[1]
