"""The workload of a run: its recorded episodes, and how groups of them are dealt to a simulated scheduler."""

from __future__ import annotations

import collections
import functools
import math
import random
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
    """One request to an engine: `context` tokens that it has not seen in this sequence, then `sampled` tokens."""

    number: int
    context: int
    sampled: int
    is_first: bool
    """Whether the turn begins a sequence, so that `context` is all that the engine reads."""
    agent: str = ""


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
        sequences: list[list[Segment]] = []
        for turn, versions in zip(self.turns, spans, strict=True):
            if turn.is_first or not sequences:
                sequences.append([])
            ids, logprobs = _zeros(turn.sampled)
            sequences[-1] += [
                Segment(_zeros(turn.context)[0], False, turn=turn.number),
                Segment(ids, True, logprobs, versions, turn.number, turn.agent),
            ]
        return Trajectory(
            request.sample,
            request.attempt,
            request.split,
            request.task_index,
            str(request.task_index),
            tuple(TokenSequence(tuple(segments)) for segments in sequences),
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
    for sequence in trajectory.sequences:
        context, is_first = 0, True
        for segment in sequence.segments:
            if not segment.is_action:
                context += len(segment.ids)
            elif segment.ids:
                yield Turn(segment.turn, context, len(segment.ids), is_first, segment.agent)
                context, is_first = 0, False


def learner_tokens(group: Group) -> int:
    """Return the tokens of a group that go through the learner: the prompt that its members share counts once."""
    prompts = [next(trajectory.segments) for trajectory in group.trajectories]
    tokens = sum(len(segment.ids) for trajectory in group.trajectories for segment in trajectory.segments)
    lengths = [len(prompt.ids) for prompt in prompts]
    return tokens - sum(lengths) + max(lengths)


# --------------------------------------------------------------------------------------------------------------
# Groups.


@dataclass(frozen=True, slots=True)
class Attempt:
    """A recorded attempt at a sample; `episode` is None if its process died after `seconds`."""

    episode: Episode | None
    seconds: float


Member = tuple[Attempt, ...]
"""All attempts at one sample."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedGroup:
    """A recorded group: the attempts of each member that is trained, and of each greedy baseline."""

    env: str
    members: tuple[Member, ...]
    greedy: tuple[Member, ...] = ()


class Workload:
    """Deals recorded groups to the groups of a simulation, so that the episodes of a task stay together.

    Each environment's groups are dealt in a random order, and all of them before any is dealt again. A simulated group
    with fewer members gets some of the recorded ones; one with more gets some of them twice. Rewards that are all equal
    leave a group without a signal, which is less likely for more members: `_unanimous` extrapolates how much less.
    """

    def __init__(self, groups: Sequence[RecordedGroup], members: int, seed: int = 0) -> None:
        self._members, self._random = members, random.Random(seed)
        self._pools: dict[str, list[RecordedGroup]] = collections.defaultdict(list)
        for group in groups:
            self._pools[group.env].append(group)
        self._left: dict[str, list[RecordedGroup]] = collections.defaultdict(list)
        self._dealt: dict[int, tuple[Member, ...]] = {}
        self._kept = {env: kept_unanimous(pool, members) for env, pool in self._pools.items()}

    def attempt(self, request: EpisodeRequest) -> Attempt:
        """Return the recorded attempt that a simulated one repeats."""
        if request.sample.group not in self._dealt:
            self._dealt[request.sample.group] = self._deal(request.env)
        attempts = self._dealt[request.sample.group][request.sample.member]
        return attempts[min(request.attempt, len(attempts) - 1)]

    def _deal(self, env: str) -> tuple[Member, ...]:
        if not self._left[env]:
            self._left[env] = self._random.sample(self._pools[env], len(self._pools[env]))
        group = self._left[env].pop()
        missing = self._members - len(group.members)
        if missing < 0:
            return (*self._random.sample(group.members, self._members), *group.greedy)
        more = self._random.choices(group.members, k=missing)
        if more and is_unanimous(group) and self._random.random() > self._kept[env]:
            more[0] = self._other(env, group) or more[0]
        return (*group.members, *more, *group.greedy)

    def _other(self, env: str, group: RecordedGroup) -> Member | None:
        """Return a member of any group with another reward than that of all members of `group`."""
        rewards = set(rewards_of(group))
        members = [m for other in self._pools[env] if set(rewards_of(other)) - rewards for m in other.members]
        others = [m for m in members if (episode := m[-1].episode) and episode.reward not in rewards]
        return self._random.choice(others) if others else None


def rewards_of(group: RecordedGroup) -> list[float]:
    """Return the rewards of the members that came back."""
    return [episode.reward for member in group.members if (episode := member[-1].episode)]


def is_unanimous(group: RecordedGroup) -> bool:
    """Return whether all rewards of a group are equal."""
    return len(set(rewards_of(group))) == 1


def kept_unanimous(groups: Sequence[RecordedGroup], members: int) -> float:
    """Return the share of unanimous groups that would stay unanimous with so many members.

    The chance that all rewards are equal falls by the same factor with each doubling of the members, as it does if the
    solve rates of the tasks have a beta distribution; the recorded groups and their halves give that factor.
    """
    recorded = min((len(group.members) for group in groups), default=0)
    if members <= recorded or recorded < 2:
        return 1.0
    whole, half = (_chance_unanimous(groups, size) for size in (recorded, recorded // 2))
    doublings = math.log(members / recorded) / math.log(recorded / (recorded // 2))
    return float((whole / half) ** doublings) if half else 1.0


def _chance_unanimous(groups: Sequence[RecordedGroup], size: int) -> float:
    """Return the chance that `size` members, drawn at random from a random group, have equal rewards."""
    chances = []
    for group in groups:
        counts = collections.Counter(rewards_of(group))
        if (total := counts.total()) >= size:
            chances.append(sum(math.comb(count, size) for count in counts.values()) / math.comb(total, size))
    return sum(chances) / max(1, len(chances))
