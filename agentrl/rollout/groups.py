"""Groups on their way to training: open while their members run, then buffered until a batch takes them."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from agentrl.rollout.faults import fault_of
from agentrl.rollout.task_order import EnvPlan, epoch_seed, shares
from agentrl.types import (
    TRAIN,
    AttemptId,
    Batch,
    DroppedSample,
    DropReason,
    EpisodeRequest,
    Group,
    GroupTask,
    SampleId,
    Trajectory,
    Version,
    age,
)
from agentrl.types.outcomes import GroupOutcome


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """What all groups of a run have in common, and the environments among which they are divided.

    A group has `group_size` members to train, and after them `greedy` baselines, decoded at temperature 0.
    A group is trained if at least `min_valid` members are left: as many as the algorithm compares, 1 if it compares
    none. For each batch, at most `max_filtered_batches` times its number of groups are replaced for having no signal.
    """

    seed: int
    prompts: int
    group_size: int
    envs: tuple[EnvPlan, ...]
    max_staleness: int
    on_stale: Literal["drop", "wait"]
    max_invalid: float
    greedy: int = 0
    min_valid: int = 2
    max_filtered_batches: int = 0
    steps: int = 1 << 30
    has_curriculum: bool = False
    max_attempts: int = 3

    @property
    def members(self) -> int:
        """The number of episodes of a group."""
        return self.group_size + self.greedy

    @property
    def samples(self) -> int:
        """The number of episodes behind a batch."""
        return self.prompts * self.members

    @property
    def shares(self) -> dict[str, float]:
        """The share of each environment in the groups, by label."""
        return shares(self.envs)

    def samples_of(self, plan: EnvPlan) -> int:
        """Return the number of episodes behind a batch that an environment has, at least one group."""
        return max(1, round(self.prompts * self.shares[plan.label])) * self.members

    def named(self, plan: EnvPlan) -> str:
        """Return " of LABEL" if the run has several environments."""
        return f" of {plan.label}" if len(self.envs) > 1 else ""

    @property
    def is_ordered(self) -> bool:
        """True if groups are trained in the order of dispatch, so that the slowest one keeps the others waiting."""
        return self.on_stale == "wait" or self.max_staleness == 0

    def resting(self, open_groups: Iterable[GroupTask], trained: int) -> set[str]:
        """Return the environments that have their share of the outstanding groups in flight already.

        None if groups are trained in order: then the next group is fixed, and no other could be trained before it.
        """
        if self.is_ordered or len(self.envs) == 1:
            return set()
        counts = collections.Counter(task.env for task in open_groups)
        most = {env: math.ceil(share * self.capacity(trained)) for env, share in self.shares.items()}
        return {env for env, count in counts.items() if count >= most[env]}

    @property
    def patience_s(self) -> float:
        """The longest time until an outstanding group ends: all attempts of all that wait for each other."""
        return max(plan.episode.episode_timeout_s * self._waves(plan) for plan in self.envs) * self.max_attempts

    def _waves(self, plan: EnvPlan) -> int:
        outstanding = (self.max_staleness + 1) * self.samples_of(plan)
        return math.ceil(outstanding / plan.concurrency) if plan.concurrency else 1

    def is_baseline(self, sample: SampleId) -> bool:
        """True for a member that is decoded greedily and never trained."""
        return sample.member >= self.group_size

    def capacity(self, trained: int) -> int:
        """Groups that may be outstanding after `trained` steps: in flight, buffered, or in the batch in training."""
        return min(self.max_staleness + 1, self.steps - trained) * self.prompts

    def plan(self, env: str) -> EnvPlan:
        """Return the plan of the environment with this label."""
        return next(plan for plan in self.envs if plan.label == env)

    def request(self, task: GroupTask, sample: SampleId, attempt: int) -> EpisodeRequest:
        """Return the request for an attempt."""
        plan = self.plan(task.env)
        seed = epoch_seed(plan.seed, task.epoch)
        episode = dataclasses.replace(plan.episode, temperature=0.0) if self.is_baseline(sample) else plan.episode
        return EpisodeRequest(sample, attempt, TRAIN, task.index, seed, episode, task.env, task.epoch)


class AttemptLog(Protocol):
    """Records what happens to every attempt and group; the scheduler calls it before it acts."""

    def dispatched(self, requests: Iterable[EpisodeRequest]) -> None:
        """Record attempts that are about to run."""

    def finished(self, trajectory: Trajectory) -> None:
        """Record an attempt that came back."""

    def settled(self, attempts: Iterable[AttemptId], outcome: DropReason, reason: str) -> None:
        """Record attempts that end untrained."""

    def observed(self, outcome: GroupOutcome) -> None:
        """Record the outcome of a group, from which the curriculum learns."""


@dataclass(slots=True)
class OpenGroup:
    """A group of which some members have not come back. `recorded` members are logged as finished.

    `failures` counts the failed attempts of each member in this start of the run.
    """

    id: int
    task: GroupTask
    back: dict[int, Trajectory] = field(default_factory=dict)
    given_up: set[int] = field(default_factory=set)
    recorded: set[int] = field(default_factory=set)
    failures: collections.Counter[int] = field(default_factory=collections.Counter)

    @property
    def settled(self) -> set[int]:
        """Members that will not run again."""
        return self.back.keys() | self.given_up

    @property
    def unrecorded(self) -> list[Trajectory]:
        """Members that came back but are not logged as finished."""
        return [t for member, t in self.back.items() if member not in self.recorded]


class GroupBuffer:
    """Complete groups that can still be trained, and the samples dropped since the last batch.

    `version` is the version of the learner's weights; `forks` is where each incarnation of the run began (see
    `types.age`). `has_signal` is given if groups without a signal are to be replaced.
    """

    def __init__(
        self,
        settings: RolloutSettings,
        log: AttemptLog,
        version: Version,
        forks: tuple[int, ...],
        has_signal: Callable[[Group], bool] | None,
    ) -> None:
        self.version = version
        self._settings, self._log, self._forks, self._has_signal = settings, log, forks, has_signal
        self._groups: dict[int, Group] = {}
        self._replaced = 0  # groups without a signal, since the last batch
        self._dropped: list[DroppedSample] = []
        self._restored_dropped = 0  # tokens, since the last batch

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def progress(self) -> int:
        """Groups that wait for a batch, or were replaced since the last one: only so many are."""
        return len(self._groups) + self._replaced

    def add(self, group: OpenGroup) -> None:
        """Take a group whose members are all settled; those that cannot be trained are dropped."""
        members = [group.back[member] for member in sorted(group.back)]
        for trajectory in members:
            if not trajectory.is_trainable:
                self.drop_faulty(trajectory)
        usable = [t for t in members if t.is_trainable]
        trained = tuple(t for t in usable if not self._settings.is_baseline(t.sample))
        self._admit(Group(group.id, trained, tuple(t for t in usable if self._settings.is_baseline(t.sample))))

    def drop_faulty(self, trajectory: Trajectory) -> None:
        """Drop a sample that cannot be trained."""
        fault = fault_of(trajectory)
        assert fault is not None, "the sample can be trained"
        self.drop([trajectory], fault.outcome, fault.reason)

    def drop(self, trajectories: Sequence[Trajectory], outcome: DropReason, reason: str) -> None:
        """Settle samples that came back but are not trained."""
        if trajectories:
            self._dropped.extend(DroppedSample(outcome, reason, t.action_tokens, t.env) for t in trajectories)
            self._restored_dropped += self._restored_tokens(trajectories)
            self._log.settled([(t.sample, t.attempt) for t in trajectories], outcome, reason)

    def drop_lost(self, attempt: AttemptId, env: str, reason: str) -> None:
        """Settle an attempt that did not come back."""
        self._dropped.append(DroppedSample("lost", reason, 0, env))
        self._log.settled([attempt], "lost", reason)

    def drop_stale(self) -> None:
        """Drop samples that are older than `max_staleness`, and groups that are too small without them.

        A baseline may be older: none of its tokens is trained, and any fixed baseline leaves the gradient unbiased.
        """
        for group in list(self._groups.values()):
            stale = [t for t in group.trajectories if self._is_stale(t)]
            if stale:
                self.drop(stale, "stale", f"older than {self._settings.max_staleness} updates")
                del self._groups[group.id]
                fresh = tuple(t for t in group.trajectories if not self._is_stale(t))
                self._admit(dataclasses.replace(group, trajectories=fresh))

    def without_rolled_back(self, restored: Iterable[Trajectory]) -> list[Trajectory]:
        """Settle as lost what a resume has made too old: what weights sampled that it rolled back. Returns the rest."""
        kept: list[Trajectory] = []
        lost: list[Trajectory] = []
        for trajectory in restored:
            is_lost = self._is_stale(trajectory) and not self._settings.is_baseline(trajectory.sample)
            (lost if is_lost else kept).append(trajectory)
        self.drop(lost, "lost", "a resume rolled back the weights that sampled it")
        return kept

    def choose(self, first_open: int) -> list[Group] | None:
        """Return the groups of the next batch, or None if there are too few.

        `first_open` is the oldest open group's id.
        """
        settings = self._settings
        candidates = sorted(self._groups.values(), key=lambda group: group.id)
        if settings.is_ordered:
            # In order of dispatch: because `capacity` holds at dispatch, every sample is within the bound.
            candidates = [group for group in candidates if group.id < first_open]
        return candidates[: settings.prompts] if len(candidates) >= settings.prompts else None

    def take(self, chosen: Sequence[Group]) -> Batch:
        """Remove the chosen groups; the batch lists all samples dropped since the one before."""
        for group in chosen:
            del self._groups[group.id]
        members = [trajectory for group in chosen for trajectory in group.trajectories]
        baselines = [trajectory for group in chosen for trajectory in group.greedy]
        restored = self._restored_dropped + self._restored_tokens([*members, *baselines])
        batch = Batch(tuple(chosen), tuple(self._dropped), tuple(map(self._age, members)), restored)
        self._dropped, self._restored_dropped, self._replaced = [], 0, 0
        return batch

    def _admit(self, group: Group) -> None:
        everyone, least = (*group.trajectories, *group.greedy), self._settings.min_valid
        if len(group.trajectories) < least:
            self.drop(everyone, "filtered", "too few members to compare" if least > 1 else "no member to train")
        elif len(group.greedy) < self._settings.greedy:
            self.drop(everyone, "filtered", "no baseline to compare with")
        elif self._is_replaced(group):
            self._replaced += 1
            self.drop(everyone, "filtered", "no signal")
        else:
            self._groups[group.id] = group

    def _is_replaced(self, group: Group) -> bool:
        """True if another group is to be sampled in place of this one."""
        most = self._settings.max_filtered_batches * self._settings.prompts
        return self._has_signal is not None and self._replaced < most and not self._has_signal(group)

    def _is_stale(self, trajectory: Trajectory) -> bool:
        return self._age(trajectory) > self._settings.max_staleness

    def _age(self, trajectory: Trajectory) -> int:
        return max((age(self.version, version, self._forks) for version in trajectory.versions), default=0)

    def _restored_tokens(self, trajectories: Iterable[Trajectory]) -> int:
        """Sampled tokens of an earlier incarnation, none of whose versions is ever used again."""
        incarnation = self.version.incarnation
        return sum(t.action_tokens for t in trajectories if any(v.incarnation < incarnation for v in t.versions))


def without_group_rewards(trajectory: Trajectory) -> Trajectory:
    """Return the trajectory as it was before its group was scored."""
    signals = tuple(signal for signal in trajectory.signals if signal.scope != "group")
    return dataclasses.replace(trajectory, signals=signals)
