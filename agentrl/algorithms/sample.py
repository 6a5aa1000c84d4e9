"""What an algorithm sees of a sample and what it fills in: arrays over the sampled tokens, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from agentrl.types import Group, SampleId, Trajectory

ROUNDING = 1e-9
"""Relative tolerance: values that differ by less than this share of the largest count as equal (0.1 + 0.2 and 0.3)."""
Array = NDArray[np.float64]
Column = Literal["old", "reference", "teacher", "values"]
"""What models compute for each sampled token before credit is given: logprobs, or the values of the critic."""


@dataclass(frozen=True, slots=True)
class Reward:
    """A weighted reward: of a turn, or of the episode (`turn` None); of one agent, or of all of them ("")."""

    value: float
    turn: int | None = None
    agent: str = ""


@dataclass(slots=True, eq=False)
class Sample:
    """One sample of an optimizer batch. Arrays have length A: its sampled tokens, sequence by sequence.

    Where an agent has several conversations at once, that is not the order of sampling: `streams` has that.

    `turns` is the turn of each token, `agents` the agent that spoke in each turn, `sampler` the logprob with which each
    token was sampled. `columns` holds what the algorithm's `Needs` declare. All of these are read-only. `earned` holds
    the rewards after shaping, `kl` what a KL penalty subtracts from the reward of each token, if there is one.

    An algorithm's `credit` sets `advantages`, and `returns` if it has a critic. It may lower `weights`, the factor of
    each token in the loss (0: the token is not trained). It may also set `share` of every sample, what this sample adds
    to the number by which the summed loss is divided; otherwise `algorithm.normalization` decides it after `credit`.
    """

    trajectory: Trajectory
    turns: NDArray[np.int64]
    agents: dict[int, str]
    sampler: Array
    lengths: tuple[int, ...]
    """Sampled tokens of each sequence of the trajectory."""
    columns: dict[Column, Array] = field(default_factory=dict)
    greedy: tuple[Sample, ...] = ()
    """Members of the group that were decoded greedily for `Needs.greedy`; they are not trained."""
    earned: list[Reward] = field(default_factory=list)
    kl: Array | None = None
    advantages: Array = field(init=False)
    returns: Array | None = None
    weights: Array = field(init=False)
    share: float | None = None

    def __post_init__(self) -> None:
        self.advantages, self.weights = np.zeros(len(self)), np.ones(len(self))
        self.turns.flags.writeable = self.sampler.flags.writeable = False

    @classmethod
    def of(cls, trajectory: Trajectory, greedy: tuple[Sample, ...] = ()) -> Sample:
        """Return the sample of a trajectory."""
        actions = [segment for segment in trajectory.segments if segment.is_action]
        turns = np.repeat([s.turn for s in actions], [len(s.ids) for s in actions]).astype(np.int64)
        sampler = np.array([value for s in actions for value in s.logprobs])
        lengths = tuple(sum(len(s.ids) for s in row.segments if s.is_action) for row in trajectory.sequences)
        agents = {s.turn: s.agent for s in actions}
        return cls(trajectory, turns, agents, sampler, lengths, greedy=greedy, earned=_earned(trajectory))

    def __len__(self) -> int:
        return len(self.turns)

    def column(self, name: Column) -> Array:
        """Return a column. Raises AttributeError if the algorithm's `needs` do not declare it."""
        if name not in self.columns:
            raise AttributeError(f"the column {name!r} is not declared: add it to needs.columns", obj=self)
        return self.columns[name]

    @property
    def is_truncated(self) -> bool:
        """Whether the episode was cut by a limit instead of ending."""
        return not self.trajectory.stop_reason.is_terminal

    def rewards(self) -> Array:
        """Reward of each token: a turn's on the last token sampled up to that turn, the episode's on the last token.

        A KL penalty is subtracted. Every agent gets the rewards of all agents and its own on its own tokens: sum over
        one of the `streams`, not over all tokens. A reward before the first token is nobody's and is left out. Rewards
        of a token that add up to rounding are worth 0.
        """
        out, size = np.zeros(len(self)), np.zeros(len(self))
        for agent, tokens in self.streams().items():
            for reward in self.earned:
                if reward.agent in ("", agent):
                    own = tokens if reward.turn is None else tokens[self.turns[tokens] <= reward.turn]
                    if len(own):
                        out[own[-1]] += reward.value
                        size[own[-1]] += abs(reward.value)
        out[np.abs(out) <= ROUNDING * size] = 0.0
        return out if self.kl is None else out - self.kl

    def streams(self) -> dict[str, NDArray[np.int64]]:
        """Return the indices of each agent's tokens in the order of sampling, in which an agent earns its rewards."""
        turns, inverse = np.unique(self.turns, return_inverse=True)
        speakers, order = np.array([self.agents[turn] for turn in turns.tolist()]), np.argsort(inverse, kind="stable")
        return {str(agent): order[(speakers == agent)[inverse[order]]] for agent in np.unique(speakers)}

    def by_token(self, of_turn: Mapping[int, float]) -> Array:
        """Return the value of each token's turn."""
        turns, inverse = np.unique(self.turns, return_inverse=True)
        return np.array([of_turn[turn] for turn in turns.tolist()], dtype=np.float64)[inverse]

    def split(self, values: Array) -> list[Array]:
        """Split an array over the sampled tokens by sequence."""
        stops = accumulate(self.lengths)
        return [values[stop - length : stop] for stop, length in zip(stops, self.lengths, strict=True)]


def samples_of(groups: Sequence[Group]) -> list[list[Sample]]:
    """Return the samples of a batch, indexed by [group][member]."""
    return [_members(group) for group in groups]


def _members(group: Group) -> list[Sample]:
    greedy = tuple(Sample.of(trajectory) for trajectory in group.greedy)
    return [Sample.of(trajectory, greedy) for trajectory in group.trajectories]


def _earned(trajectory: Trajectory) -> list[Reward]:
    return [
        Reward(s.weight * s.value, s.turn if s.scope == "turn" else None, s.agent)
        for s in trajectory.signals
        if s.valid and s.value is not None
    ]


# --------------------------------------------------------------------------------------------------------------
# What the learner trains on.


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Arrays [A] over the sampled tokens of a sequence, in float32. A column that nothing needs is None."""

    sampler: NDArray[np.float32]
    advantages: NDArray[np.float32]
    weights: NDArray[np.float32]
    old: NDArray[np.float32] | None = None
    reference: NDArray[np.float32] | None = None
    teacher: NDArray[np.float32] | None = None
    values: NDArray[np.float32] | None = None
    returns: NDArray[np.float32] | None = None

    def items(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Yield the columns that are there, by name."""
        for item in fields(self):
            if (values := getattr(self, item.name)) is not None:
                yield item.name, values


@dataclass(frozen=True, slots=True, eq=False)
class TrainSequence:
    """One sequence to train on: `ids` and `mask` (True on sampled tokens) of length T, columns of length A.

    The logprobs of the sampler were taken at `temperature`. `share` is what the sequence adds to the number by which
    the summed loss is divided.
    """

    sample: SampleId
    ids: NDArray[np.int32]
    mask: NDArray[np.bool_]
    columns: Columns
    share: float
    temperature: float = 1.0

    @property
    def actions(self) -> int:
        """Number of sampled tokens."""
        return len(self.columns.sampler)

    @property
    def has_signal(self) -> bool:
        """True when a sampled token has an advantage and a weight."""
        return bool(np.any(self.columns.advantages * self.columns.weights))

    def with_columns(self, **columns: Any) -> TrainSequence:
        """Return the sequence with other columns."""
        return replace(self, columns=replace(self.columns, **columns))


def train_sequences(groups: Iterable[Sequence[Sample]]) -> list[TrainSequence]:
    """Return the sequences of the samples, in order; sequences without a sampled token are left out."""
    return [sequence for samples in groups for sample in samples for sequence in _sequences(sample)]


def _sequences(sample: Sample) -> Iterator[TrainSequence]:
    given: dict[str, Array | None] = {
        "sampler": sample.sampler,
        "advantages": sample.advantages,
        "weights": sample.weights,
        "returns": sample.returns,
        **{str(name): values for name, values in sample.columns.items()},
    }
    share = len(sample) if sample.share is None else sample.share
    rows = {name: sample.split(values) for name, values in given.items() if values is not None}
    for number, sequence in enumerate(sample.trajectory.sequences):
        if sample.lengths[number]:
            columns = Columns(**{name: row[number].astype(np.float32) for name, row in rows.items()})
            yield TrainSequence(
                sample.trajectory.sample,
                np.array(sequence.ids, dtype=np.int32),
                np.array(sequence.mask, dtype=np.bool_),
                columns,
                share * sample.lengths[number] / len(sample),
                sample.trajectory.temperature,
            )


def plain_sequence(sample: SampleId, ids: Sequence[int], prompt: int = 1) -> TrainSequence:
    """Return a sequence to compute logprobs of: every token after the first `prompt` counts as sampled."""
    zeros, mask = np.zeros(len(ids) - prompt, dtype=np.float32), np.arange(len(ids)) >= prompt
    return TrainSequence(sample, np.array(ids, dtype=np.int32), mask, Columns(zeros, zeros, zeros), 0.0)


def attach(groups: Iterable[Sequence[Sample]], scores: dict[Column, list[Array]]) -> None:
    """Give every sample its columns; `scores` holds one array for each sequence that `train_sequences` returns."""
    for name, rows in scores.items():
        remaining = iter(rows)
        for samples in groups:
            for sample in samples:
                column = np.concatenate([next(remaining) for length in sample.lengths if length])
                column.flags.writeable = False
                sample.columns[name] = column
