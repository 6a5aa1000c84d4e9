"""The workload of a run: its recorded groups, and how they are dealt to a simulated scheduler."""

from __future__ import annotations

import collections
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from agentrl.errors import ConfigError
from agentrl.planning.simulation.episode import Episode
from agentrl.types import EpisodeRequest


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
        if not self._pools[env]:
            raise ConfigError(
                f"environment {env}: no whole group ended in the steps that a simulation repeats (all of the run, and "
                "each half of them). Record a longer run"
            )
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
