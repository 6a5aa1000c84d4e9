"""A recorded episode: what each of its turns makes an engine read and sample, and its seconds elsewhere."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentrl.types import (
    EpisodeRequest,
    Group,
    Segment,
    Signal,
    StopReason,
    Timings,
    TokenSequence,
    Trajectory,
    VersionSpan,
)

Spans = tuple[VersionSpan, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """One request to an engine: `context` tokens that it has not seen in this sequence, then `sampled` tokens.

    `sequence`: the number of the episode's sequence that the turn begins or continues. Its first `inherited` tokens are
    those of the sequence `origin`.
    """

    number: int
    context: int
    sampled: int
    sequence: int = 0
    agent: str = ""
    inherited: int = 0
    origin: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """A recorded episode without its texts and token ids, and the seconds that it took outside the engines.

    `env_s` is divided evenly before, between and after the turns; `worker_s` is what the worker itself computed.
    """

    turns: tuple[Turn, ...]
    env_s: float
    score_s: float
    worker_s: float
    engine_s: float
    signals: tuple[Signal, ...]
    stop_reason: StopReason

    @classmethod
    def of(cls, trajectory: Trajectory) -> Episode:
        """Return the episode behind a trajectory."""
        spent = trajectory.timings
        turns = sorted(_turns(trajectory), key=lambda turn: turn.number)
        rest_s = spent.total_s - spent.engine_s - spent.env_s - spent.score_s
        signals = tuple(
            Signal(s.name, s.value, s.weight, s.scope, s.valid, turn=s.turn, agent=s.agent) for s in trajectory.signals
        )
        return cls(
            tuple(turns), spent.env_s, spent.score_s, max(0.0, rest_s), spent.engine_s, signals, trajectory.stop_reason
        )

    @property
    def pause_s(self) -> float:
        """The seconds in the environment before each turn, and after the last one."""
        return self.env_s / (len(self.turns) + 1)

    @property
    def sampled(self) -> int:
        """The number of sampled tokens."""
        return sum(turn.sampled for turn in self.turns)

    @property
    def reward(self) -> float:
        """The weighted sum of the valid signals."""
        return sum(s.weight * s.value for s in self.signals if s.valid and s.value is not None)

    def trajectory(self, request: EpisodeRequest, spans: Sequence[Spans], engine_s: float) -> Trajectory:
        """Return the trajectory of a simulated attempt; `spans` are the versions that sampled each turn."""
        total_s = self.worker_s + engine_s + self.env_s + self.score_s
        sequences: dict[int, list[Segment]] = {}
        for turn, versions in zip(self.turns, spans, strict=True):
            ids, logprobs = _zeros(turn.sampled)
            sequences.setdefault(turn.sequence, []).extend(
                [
                    Segment(_zeros(turn.context)[0], False, turn=turn.number),
                    Segment(ids, True, logprobs, versions, turn.number, turn.agent),
                ]
            )
        return Trajectory(
            request.sample,
            request.attempt,
            request.split,
            request.task_index,
            str(request.task_index),
            tuple(TokenSequence(tuple(segments)) for segments in sequences.values()),
            (),
            self.signals,
            self.stop_reason,
            request.settings.temperature,
            len(self.turns),
            Timings(total_s, engine_s, self.env_s, self.score_s),
            env=request.env,
        )


@functools.cache
def _zeros(length: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return token ids and logprobs of this length, which all simulated segments share."""
    return (0,) * length, (0.0,) * length


def _turns(trajectory: Trajectory) -> Iterator[Turn]:
    ids = [sequence.ids for sequence in trajectory.sequences]
    for number, sequence in enumerate(trajectory.sequences):
        inherited, origin = _inherited(sequence, ids[:number])
        context = 0
        for segment in sequence.segments:
            if not segment.is_action:
                context += len(segment.ids)
            elif segment.ids:
                yield Turn(segment.turn, context, len(segment.ids), number, segment.agent, inherited, origin)
                context = 0


def _inherited(sequence: TokenSequence, before: Sequence[list[int]]) -> tuple[int, int]:
    """Return how many of its first tokens a sequence has in common with one before it, and the number of that one."""
    prompt = [token for s in itertools.takewhile(lambda s: not s.is_action, sequence.segments) for token in s.ids]
    shared = [_in_common(prompt, other) for other in before]
    longest = max(shared, default=0)
    return longest, shared.index(longest) if shared else 0


def _in_common(one: list[int], other: list[int]) -> int:
    """Return the length of the longest common beginning, found by halving."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if one[least:middle] == other[least:middle] else (least, middle - 1)
    return least


@dataclass(frozen=True, slots=True)
class LearnerTokens:
    """Tokens that go through a learner; of the `sampled` ones it computes logits and loss too."""

    total: int = 0
    sampled: int = 0

    def __add__(self, more: LearnerTokens) -> LearnerTokens:
        return LearnerTokens(self.total + more.total, self.sampled + more.sampled)


def learner_tokens(group: Group) -> LearnerTokens:
    """Return the tokens of a group that go through the learner: the prompt that its members share counts once."""
    prompts = [len(next(trajectory.segments).ids) for trajectory in group.trajectories]
    segments = [segment for trajectory in group.trajectories for segment in trajectory.segments]
    total = sum(len(segment.ids) for segment in segments) - sum(prompts) + max(prompts)
    return LearnerTokens(total, sum(len(segment.ids) for segment in segments if segment.is_action))
