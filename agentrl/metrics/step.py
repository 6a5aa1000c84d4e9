"""Step and evaluation records, and how a step's record is made."""

from __future__ import annotations

import collections
import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from agentrl.metrics.statistics import Interval
from agentrl.types import TOOL_ERROR, Batch, RoleUse, SampleId, StepReport, Trajectory, Version, text_of


@dataclass(frozen=True, slots=True)
class PhaseSeconds:
    """Wall-clock seconds of the driver by what it waited for; they add up to the length of a step or of a command.

    In a step `evaluate` is the evaluation before it, during which its batch may have been sampled. Only a command has
    a `start` (until the first publication) and a `close` (from the last step until its end).
    """

    rollout: float = 0.0
    learn: float = 0.0
    publish: float = 0.0
    evaluate: float = 0.0
    checkpoint: float = 0.0
    other: float = 0.0
    start: float = 0.0
    close: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all phases."""
        return math.fsum(getattr(self, name) for name in self.__slots__)

    def __sub__(self, less: PhaseSeconds) -> PhaseSeconds:
        return PhaseSeconds(*(getattr(self, name) - getattr(less, name) for name in self.__slots__))


STEP_PHASES = ("rollout", "learn", "publish", "evaluate", "checkpoint", "other")
"""The phases that a step can have."""


@dataclass(frozen=True, slots=True)
class EnvStep:
    """The part of one environment in a step of a run with several; means are over its trained samples.

    `weight` is its share by the configuration, `groups` those that were trained, `seconds_mean` the length of an
    episode.
    """

    weight: float
    groups: int = 0
    trained: int = 0
    filtered: int = 0
    stale: int = 0
    invalid: int = 0
    unanswered: int = 0
    lost: int = 0
    truncated: int = 0
    reward_mean: float = 0.0
    length_mean: float = 0.0
    turns_mean: float = 0.0
    sequences_mean: float = 0.0
    seconds_mean: float = 0.0
    signals: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepRecord:
    """Record of one optimizer batch. Samples count in the step that trained or dropped them; lengths are in sampled
    tokens.

    `sequences_mean`: sequences per trained sample; more than 1 where a history was rewritten or calls branched.
    `staleness[a]`: trained samples whose oldest token was `a` updates old. `mid_updates`: trained samples that more
    than one version sampled. `groups_mixed`: groups with an advantage that is not 0. `entropy`: mean of -logprob over
    all sampled tokens, an unbiased estimate of the policy's entropy in nats. `signals`: means by name.
    `dropped_tokens`: sampled tokens that were not trained, those of baselines included. `restored_tokens`: sampled
    tokens that a resume restored from an earlier incarnation. `tool_use`: share of samples in which a tool returned
    anything but an error. `samples`: the trained ones as the driver chose them, which are compared with the reports of
    the ranks; `learner.samples`, from those reports, is left empty. `published_mib`: MiB of weights, or of an adapter,
    that were staged for the engines. `envs`: the part of each environment by label, if the run has several.
    `set_aside`: how many tasks the curriculum sets aside, by reason. `roles`: what the trained samples asked of each
    role.
    """

    step: int
    version: str
    at: float
    reward_mean: float
    reward_std: float
    trained: int
    learner: StepReport
    seconds: PhaseSeconds
    filtered: int = 0
    stale: int = 0
    invalid: int = 0
    unanswered: int = 0
    lost: int = 0
    groups: int = 0
    groups_mixed: int = 0
    action_tokens: int = 0
    length_mean: float = 0.0
    length_max: int = 0
    turns_mean: float = 1.0
    sequences_mean: float = 1.0
    truncated: int = 0
    staleness: tuple[int, ...] = field(default=(0,))
    mid_updates: int = 0
    entropy: float = 0.0
    dropped_tokens: int = 0
    restored_tokens: int = 0
    signals: dict[str, float] = field(default_factory=dict)
    tool_calls_mean: float = 0.0
    tool_use: float = 0.0
    samples: tuple[SampleId, ...] = ()
    published_mib: float = 0.0
    envs: dict[str, EnvStep] = field(default_factory=dict)
    set_aside: dict[str, int] = field(default_factory=dict)
    roles: dict[str, RoleUse] = field(default_factory=dict)

    @property
    def sampled_tokens(self) -> int:
        """The sampled tokens of the samples that this step trained or dropped, and of its baselines."""
        return self.action_tokens + self.dropped_tokens

    @property
    def fresh_tokens(self) -> int:
        """The sampled tokens of this incarnation of the run: only these took time in it."""
        return self.sampled_tokens - self.restored_tokens

    @property
    def sampled_per_s(self) -> float:
        """Fresh tokens per second of sampling: the time in which the driver waited for the batch, evaluated or wrote a
        checkpoint, or the whole step if sampling continues during updates.
        """
        waited = self.seconds.rollout + self.seconds.evaluate + self.seconds.checkpoint
        seconds = self.seconds.total if self.staleness_mean > 0 else waited
        return self.fresh_tokens / seconds if seconds > 0 else 0.0

    @property
    def trained_per_s(self) -> float:
        """Tokens trained per second of learning; 0.0 if nothing was learned."""
        has_rate = self.learner.has_learned and self.seconds.learn > 0
        return self.learner.learned_tokens / self.seconds.learn if has_rate else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Fresh tokens per second of the whole step."""
        return self.fresh_tokens / self.seconds.total if self.seconds.total > 0 else 0.0

    @property
    def staleness_mean(self) -> float:
        """The mean age of the trained samples, in updates."""
        return sum(a * n for a, n in enumerate(self.staleness)) / max(1, sum(self.staleness))


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """Record of the evaluation of one version on held-out tasks, after `step` steps.

    pass@1 and pass@k are means over `tasks_at_1` and `tasks_at_k` tasks, those with enough valid episodes. `invalid`
    episodes could not be scored; `unanswered` ones (no token was sampled) count as failed. `cause` is the most common
    cause of both. `envs`: the same of each environment by label, if the run has several.
    """

    step: int
    version: str
    at: float
    split: str
    tasks: int
    samples: int
    pass_at_1: Interval
    pass_at_k: Interval
    k: int
    reward_mean: float = 0.0
    length_mean: float = 0.0
    invalid: int = 0
    seconds: float = 0.0
    signals: dict[str, float] = field(default_factory=dict)
    tool_use: float = 0.0
    unanswered: int = 0
    cause: str = ""
    tasks_at_1: int = 0
    tasks_at_k: int = 0
    envs: dict[str, EvaluationRecord] = field(default_factory=dict)

    @property
    def validity(self) -> str:
        """'3 of 4 episodes valid' with the excluded tasks and the cause, '' if all were valid and answered."""
        if not (self.invalid or self.unanswered):
            return ""
        episodes = self.tasks * self.samples
        unanswered = f", {self.unanswered} of them unanswered" if self.unanswered else ""
        judged = {1: self.tasks_at_1, self.k: self.tasks_at_k}
        left_out = [
            f"pass@{k} over {count} of {self.tasks} tasks" if count else f"no task has {k} for pass@{k}"
            for k, count in judged.items()
            if count < self.tasks
        ]
        return "; ".join([f"{episodes - self.invalid} of {episodes} episodes valid{unanswered}", *left_out, self.cause])


@dataclass(frozen=True, slots=True)
class Learned:
    """Result of training on a batch: the report of each rank, how many groups had a signal, and what was published."""

    reports: tuple[StepReport, ...]
    groups_with_signal: int
    published_mib: float = 0.0


def step_record(
    step: int,
    version: Version,
    batch: Batch,
    learned: Learned,
    seconds: PhaseSeconds,
    shares: Mapping[str, float] = MappingProxyType({}),
) -> StepRecord:
    """Return the record of `step`, after which learner and engines hold `version`.

    `shares` are the shares of the environments by their weights.
    """
    trajectories = [t for group in batch.groups for t in group.trajectories]
    rewards = [t.reward for t in trajectories]
    lengths = [t.action_tokens for t in trajectories]
    dropped = collections.Counter(sample.outcome for sample in batch.dropped)
    ages = collections.Counter(batch.ages)
    return StepRecord(
        step=step,
        version=str(version),
        at=time.time(),
        reward_mean=statistics.fmean(rewards),
        reward_std=statistics.pstdev(rewards),
        trained=len(trajectories),
        learner=merged_report(learned.reports),
        seconds=seconds,
        filtered=dropped["filtered"],
        stale=dropped["stale"],
        invalid=dropped["invalid"],
        unanswered=dropped["unanswered"],
        lost=dropped["lost"],
        groups=len(batch.groups),
        groups_mixed=learned.groups_with_signal,
        published_mib=learned.published_mib,
        action_tokens=sum(lengths),
        dropped_tokens=sum(sample.tokens for sample in batch.dropped)
        + sum(t.action_tokens for group in batch.groups for t in group.greedy),
        restored_tokens=batch.restored_tokens,
        entropy=-math.fsum(value for t in trajectories for s in t.segments for value in s.logprobs) / sum(lengths),
        length_mean=statistics.fmean(lengths),
        length_max=max(lengths),
        turns_mean=statistics.fmean(t.turns for t in trajectories),
        sequences_mean=statistics.fmean(len(t.sequences) for t in trajectories),
        truncated=sum(not t.stop_reason.is_terminal for t in trajectories),
        staleness=tuple(ages[age] for age in range(max(ages, default=0) + 1)),
        mid_updates=sum(len({v.version for s in t.segments for v in s.versions}) > 1 for t in trajectories),
        signals=signal_means(trajectories),
        tool_calls_mean=statistics.fmean(len(t.tool_results) for t in trajectories),
        tool_use=tool_use(trajectories),
        samples=tuple(t.sample for t in trajectories),
        roles=role_uses(trajectories),
        envs={env: env_step(env, share, batch) for env, share in shares.items()} if len(shares) > 1 else {},
    )


def env_step(env: str, weight: float, batch: Batch) -> EnvStep:
    """Return the part of one environment in a batch."""
    groups = [group.trajectories for group in batch.groups if group.trajectories[0].env == env]
    trajectories = [trajectory for group in groups for trajectory in group]
    dropped = collections.Counter(sample.outcome for sample in batch.dropped if sample.env == env)
    part = EnvStep(
        weight,
        len(groups),
        len(trajectories),
        filtered=dropped["filtered"],
        stale=dropped["stale"],
        invalid=dropped["invalid"],
        unanswered=dropped["unanswered"],
        lost=dropped["lost"],
    )
    if not trajectories:
        return part
    return replace(
        part,
        truncated=sum(not t.stop_reason.is_terminal for t in trajectories),
        reward_mean=statistics.fmean(t.reward for t in trajectories),
        length_mean=statistics.fmean(t.action_tokens for t in trajectories),
        turns_mean=statistics.fmean(t.turns for t in trajectories),
        sequences_mean=statistics.fmean(len(t.sequences) for t in trajectories),
        seconds_mean=statistics.fmean(t.timings.total_s for t in trajectories),
        signals=signal_means(trajectories),
    )


def rewriters(batch: Batch) -> dict[str, float]:
    """Return the environments in which every turn of most long episodes began a sequence, with their mean sequences.

    Long episodes have at least three turns; shorter ones have as many sequences if two calls are made in parallel.
    """
    found: dict[str, float] = {}
    trajectories = [t for group in batch.groups for t in group.trajectories if t.turns >= 3]
    for env in dict.fromkeys(t.env for t in trajectories):
        long = [t for t in trajectories if t.env == env]
        if 2 * sum(len(t.sequences) == t.turns for t in long) > len(long):
            found[env] = statistics.fmean(len(t.sequences) for t in long)
    return found


def merged_report(reports: Sequence[StepReport]) -> StepReport:
    """Return the reports of all ranks as one: samples and tokens added up, the seconds of the slowest rank."""
    return replace(
        reports[0],
        tokens=sum(report.tokens for report in reports),
        samples=tuple(sample for report in reports for sample in report.samples),
        seconds=max(report.seconds for report in reports),
    )


def tool_use(trajectories: Sequence[Trajectory]) -> float:
    """Return the share of episodes in which a tool returned anything but an error."""
    return statistics.fmean(
        any(not text_of(result).startswith(TOOL_ERROR) for result in t.tool_results) for t in trajectories
    )


def role_uses(trajectories: Iterable[Trajectory]) -> dict[str, RoleUse]:
    """Return what episodes asked of each role, by name."""
    uses: dict[str, RoleUse] = {}
    for trajectory in trajectories:
        for name, use in trajectory.roles.items():
            uses[name] = uses.get(name, RoleUse()) + use
    return uses


def signal_means(trajectories: Iterable[Trajectory]) -> dict[str, float]:
    """Return the mean of every signal that has a value, by name."""
    values: dict[str, list[float]] = {}
    for trajectory in trajectories:
        for signal in trajectory.signals:
            if signal.value is not None:
                values.setdefault(signal.name, []).append(signal.value)
    return {name: statistics.fmean(column) for name, column in values.items()}
