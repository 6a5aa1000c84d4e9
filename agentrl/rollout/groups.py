"""Groups on their way to training: open while their members run, then buffered until a batch takes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from agentrl.rollout.faults import fault_of
from agentrl.rollout.task_order import stable_hash, task_of
from agentrl.types import (
    TRAIN,
    AttemptId,
    Batch,
    DropReason,
    EpisodeRequest,
    EpisodeSettings,
    Group,
    SampleId,
    Trajectory,
    Version,
    age,
)


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """What all groups of a run have in common. `tasks` is the length of the split, None if it is endless.

    A group has `group_size` members to train, and after them `greedy` baselines, decoded at temperature 0.
    A group is trained if at least `min_valid` members are left: as many as the algorithm compares, 1 if it compares
    none. For each batch, at most `max_filtered_batches` times its number of groups are replaced for having no signal.
    """

    seed: int
    prompts: int
    group_size: int
    episode: EpisodeSettings
    max_staleness: int
    on_stale: Literal["drop", "wait"]
    max_invalid: float
    greedy: int = 0
    min_valid: int = 2
    max_filtered_batches: int = 0
    steps: int = 1 << 30
    tasks: int | None = None
    max_attempts: int = 3

    @property
    def members(self) -> int:
        """The number of episodes of a group."""
        return self.group_size + self.greedy

    @property
    def samples(self) -> int:
        """The number of episodes behind a batch."""
        return self.prompts * self.members

    def is_baseline(self, sample: SampleId) -> bool:
        """True for a member that is decoded greedily and never trained."""
        return sample.member >= self.group_size

    def capacity(self, trained: int) -> int:
        """Groups that may be outstanding after `trained` steps: in flight, buffered, or in the batch in training."""
        return min(self.max_staleness + 1, self.steps - trained) * self.prompts

    def request(self, sample: SampleId, attempt: int) -> EpisodeRequest:
        """Return the request for an attempt. Later epochs over the same tasks draw fresh randomness."""
        epoch, task_index = task_of(self.seed, sample.group, self.tasks)
        seed = self.seed if epoch == 0 else stable_hash(self.seed, "epoch", epoch)
        episode = dataclasses.replace(self.episode, temperature=0.0) if self.is_baseline(sample) else self.episode
        return EpisodeRequest(sample, attempt, TRAIN, task_index, seed, episode)


class AttemptLog(Protocol):
    """Records what happens to every attempt; the scheduler calls it before it acts."""

    def dispatched(self, requests: Iterable[EpisodeRequest]) -> None:
        """Record attempts that are about to run."""

    def finished(self, trajectory: Trajectory) -> None:
        """Record an attempt that came back."""

    def settled(self, attempts: Iterable[AttemptId], outcome: DropReason, reason: str) -> None:
        """Record attempts that end untrained."""


@dataclass(slots=True)
class OpenGroup:
    """A group of which some members have not come back. `recorded` members are logged as finished."""

    id: int
    back: dict[int, Trajectory] = field(default_factory=dict)
    given_up: set[int] = field(default_factory=set)
    recorded: set[int] = field(default_factory=set)

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
        self._dropped: list[tuple[DropReason, str, int]] = []
        self._restored_dropped = 0  # tokens, since the last batch

    def __len__(self) -> int:
        return len(self._groups)

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
            self._dropped.extend((outcome, reason, t.action_tokens) for t in trajectories)
            self._restored_dropped += self._restored_tokens(trajectories)
            self._log.settled([(t.sample, t.attempt) for t in trajectories], outcome, reason)

    def drop_lost(self, attempt: AttemptId, reason: str) -> None:
        """Settle an attempt that did not come back."""
        self._dropped.append(("lost", reason, 0))
        self._log.settled([attempt], "lost", reason)

    def drop_stale(self) -> None:
        """Drop samples that are older than `max_staleness`, and groups that are too small without them.

        A baseline may be older: none of its tokens is trained, and any fixed baseline leaves the gradient unbiased.
        """
        bound = self._settings.max_staleness
        for group in list(self._groups.values()):
            stale = [t for t in group.trajectories if self._age(t) > bound]
            if stale:
                self.drop(stale, "stale", f"older than {bound} updates")
                del self._groups[group.id]
                fresh = tuple(t for t in group.trajectories if self._age(t) <= bound)
                self._admit(dataclasses.replace(group, trajectories=fresh))

    def choose(self, first_open: int) -> list[Group] | None:
        """Return the groups of the next batch, or None if there are too few.

        `first_open` is the oldest open group's id.
        """
        settings = self._settings
        candidates = sorted(self._groups.values(), key=lambda group: group.id)
        if settings.on_stale == "wait" or settings.max_staleness == 0:
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
