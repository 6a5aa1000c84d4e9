"""Which task each group has, and the seeds of all random choices: the same for the same seed of the run."""

from __future__ import annotations

import collections
import functools
import hashlib
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from agentrl.types import EpisodeSettings, GroupTask


@dataclass(frozen=True, slots=True)
class EnvPlan:
    """What a run trains on one environment: a share of the groups by `weight`, and the settings of its episodes.

    `tasks` is the length of the training split, None if it is endless. `seed` determines the randomness of episodes,
    of which at most `concurrency` run at once (0: any number).
    """

    label: str
    episode: EpisodeSettings
    seed: int
    weight: float = 1.0
    tasks: int | None = None
    has_group_rewards: bool = False
    concurrency: int = 0


class TaskSampler:
    """Chooses the task of each new group; `opened` are the tasks of the groups that a resumed run has dispatched.

    The groups of an environment follow its own order of tasks, which is the same alone and beside others. Among
    environments the next group belongs to the one that is farthest behind its share of the weights (smooth weighted
    round robin). A task that is not `is_visited` in an epoch is left out.
    """

    def __init__(
        self,
        seed: int,
        plans: Sequence[EnvPlan],
        opened: Iterable[GroupTask] = (),
        is_visited: Callable[[GroupTask], bool] = lambda _: True,
    ) -> None:
        self._seed, self._plans, self._is_visited = seed, plans, is_visited
        self._shares = shares(plans)
        by_env: dict[str, list[GroupTask]] = collections.defaultdict(list)
        for task in opened:
            by_env[task.env].append(task)
        self._opened = {plan.label: len(by_env[plan.label]) for plan in plans}
        self._next = {plan.label: self._position_after(plan, by_env[plan.label]) for plan in plans}

    def next(self, resting: Collection[str] = ()) -> GroupTask:
        """Return the task of the next group; none of an environment that is `resting`."""
        number = sum(self._opened.values()) + 1
        plans = [plan for plan in self._plans if plan.label not in resting]
        plan = max(plans, key=lambda plan: self._shares[plan.label] * number - self._opened[plan.label])
        self._opened[plan.label] += 1
        while not self._is_visited(task := self._step(plan)):
            pass
        return task

    def _step(self, plan: EnvPlan) -> GroupTask:
        """Return the task at the present position of an environment, and go on to the next."""
        position = self._next[plan.label]
        self._next[plan.label] = position + 1
        return GroupTask(plan.label, *task_at(self._seed, position, plan.tasks))

    def _position_after(self, plan: EnvPlan, opened: list[GroupTask]) -> int:
        """Return the first position in the order of an environment that no group has."""
        epoch = max((task.epoch for task in opened), default=0)
        latest = [task.index for task in opened if task.epoch == epoch]
        if not plan.tasks:
            return max(latest, default=-1) + 1
        place = {index: place for place, index in enumerate(shuffled(self._seed, epoch, plan.tasks))}
        return epoch * plan.tasks + max((place.get(index, -1) for index in latest), default=-1) + 1


def shares(plans: Sequence[EnvPlan]) -> dict[str, float]:
    """Return the share of each environment in the groups, by label."""
    total = sum(plan.weight for plan in plans)
    return {plan.label: plan.weight / total for plan in plans}


def task_at(seed: int, position: int, tasks: int | None) -> tuple[int, int]:
    """(epoch, task index) at a position of an environment's order over a split of `tasks` tasks (None: endless)."""
    if not tasks:
        return 0, position
    epoch, place = divmod(position, tasks)
    return epoch, shuffled(seed, epoch, tasks)[place]


@functools.lru_cache(maxsize=8)
def shuffled(seed: int, epoch: int, tasks: int) -> tuple[int, ...]:
    """Return the order in which an epoch visits the tasks: a permutation of range(tasks)."""
    order = list(range(tasks))
    random.Random(stable_hash(seed, "shuffle", epoch)).shuffle(order)
    return tuple(order)


def epoch_seed(seed: int, epoch: int) -> int:
    """Return the seed of training episodes: later epochs over the same tasks draw fresh randomness."""
    return seed if epoch == 0 else stable_hash(seed, "epoch", epoch)


def evaluation_seed(seed: int) -> int:
    """Return the seed of the episodes of evaluations, whose randomness differs from that of training."""
    return stable_hash(seed, "evaluation")


def stable_hash(*parts: object) -> int:
    """Return a 63-bit hash of the parts, the same in every process."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
