"""Evaluation: sample one version on held-out tasks. Its episodes are in no ledger and are never trained."""

from __future__ import annotations

import dataclasses
import shutil
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from agentrl.cluster.signals import together
from agentrl.env.rewards import passes
from agentrl.errors import RunError, WorkerLostError
from agentrl.metrics.statistics import pass_at_k_interval
from agentrl.metrics.step import EvaluationRecord, signal_means, tool_use
from agentrl.records.store import TrajectoryStore
from agentrl.rollout.faults import SampleFault, fault_of, most_common
from agentrl.rollout.task_order import evaluation_seed
from agentrl.types import EpisodeRequest, EpisodeSettings, SampleId, StopReason, Trajectory, Version

T = TypeVar("T")

ATTEMPTS = 3


class Workers(Protocol):
    """Runs the episodes; implemented by `agentrl.cluster.workers.Workers`. Calls raise WorkerLostError."""

    async def dispatch(self, request: EpisodeRequest) -> Trajectory:
        """Run one episode."""

    async def score_group(self, trajectories: Sequence[Trajectory]) -> Sequence[Trajectory]:
        """Return the finished members of one group with their group rewards."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What an evaluation plays of one environment: its first `tasks` tasks."""

    label: str
    tasks: int
    episode: EpisodeSettings
    seed: int = 0
    has_group_rewards: bool = False


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`samples` episodes of the first tasks of each environment's `split`, with the same seeds every time.

    The samples of a task form a group; groups are numbered through all environments. pass@k is estimated for `k` (0:
    for `samples`).
    """

    split: str
    envs: tuple[HeldOut, ...]
    samples: int
    k: int
    seed: int

    @property
    def tasks(self) -> int:
        """The number of tasks of all environments."""
        return sum(env.tasks for env in self.envs)

    def task(self, group: int) -> tuple[HeldOut, int]:
        """Return the environment and the task index of a group."""
        for env in self.envs:
            if group < env.tasks:
                return env, group
            group -= env.tasks
        raise IndexError(group)

    def request(self, sample: SampleId, attempt: int = 0) -> EpisodeRequest:
        """Return the request for one sample."""
        env, index = self.task(sample.group)
        seed = evaluation_seed(env.seed)
        return EpisodeRequest(sample, attempt, self.split, index, seed, env.episode, env.label)

    async def run(self, workers: Workers, step: int, version: Version, folder: Path) -> EvaluationRecord:
        """Run every episode and store it in `folder`. The samples of a task form a group.

        Raises RunError if no episode has a reward, or if other versions than `version` sampled any of them.
        """
        began = time.monotonic()
        groups = await together([self._group(workers, group) for group in range(self.tasks)])
        trajectories = [trajectory for group in groups for trajectory in group]
        shutil.rmtree(folder, ignore_errors=True)  # from an earlier incarnation, whose weights were others
        store = TrajectoryStore(folder)
        store.append(trajectories)
        store.close()
        _refuse_other_versions(trajectories, version)
        score = partial(self._record, step=step, version=version, seconds=time.monotonic() - began)
        if len(self.envs) == 1:
            return score(trajectories)
        each = {
            env.label: score([t for t in trajectories if t.env == env.label], f" of {env.label}") for env in self.envs
        }
        return dataclasses.replace(score(trajectories), envs=each)

    async def _group(self, workers: Workers, group: int) -> Sequence[Trajectory]:
        """Return the samples of one task, with their group rewards if there are any."""
        samples = [SampleId(group, member) for member in range(self.samples)]
        members = await together([self._one(workers, sample) for sample in samples])
        if not self.task(group)[0].has_group_rewards:
            return members
        return await _retried(lambda _: workers.score_group(members), f"the group rewards of task {group}")

    async def _one(self, workers: Workers, sample: SampleId) -> Trajectory:
        """Run one episode, again after an error of the infrastructure or an engine, as in training."""
        for failed in range(ATTEMPTS):
            trajectory = await _retried(
                lambda lost, failed=failed: workers.dispatch(self.request(sample, failed + lost)),  # type: ignore[misc]
                f"evaluation of sample {sample}",
            )
            if trajectory.stop_reason not in (StopReason.INFRA_ERROR, StopReason.MODEL_ERROR):
                break
        return trajectory

    def _record(
        self, trajectories: Sequence[Trajectory], of: str = "", *, step: int, version: Version, seconds: float
    ) -> EvaluationRecord:
        """Return the record of the episodes of one or of all environments. Raises RunError if none of them counts."""
        faults = {t.sample: fault for t in trajectories if (fault := judgement_fault(t))}
        valid = [t for t in trajectories if t.sample not in faults]
        cause = most_common(list(faults.values())) if faults else ""
        if not valid:
            raise RunError(f"no valid episode among {len(trajectories)} in the evaluation{of}. {cause}")
        groups = dict.fromkeys(t.sample.group for t in trajectories)
        counted, successes = dict.fromkeys(groups, 0), dict.fromkeys(groups, 0)
        for trajectory in trajectories:
            fault = faults.get(trajectory.sample)
            if fault is None or fault.outcome == "unanswered":
                counted[trajectory.sample.group] += 1
                successes[trajectory.sample.group] += is_success(trajectory)
        k, of_task, solved = self.k or self.samples, list(counted.values()), list(successes.values())
        return EvaluationRecord(
            step=step,
            version=str(version),
            at=time.time(),
            split=self.split,
            tasks=len(groups),
            samples=self.samples,
            pass_at_1=pass_at_k_interval(solved, of_task, 1, self.seed),
            pass_at_k=pass_at_k_interval(solved, of_task, k, self.seed),
            k=k,
            reward_mean=statistics.fmean(t.reward for t in valid),
            length_mean=statistics.fmean(t.action_tokens for t in valid),
            invalid=sum(fault.outcome == "invalid" for fault in faults.values()),
            unanswered=sum(fault.outcome == "unanswered" for fault in faults.values()),
            cause=cause,
            tasks_at_1=sum(count >= 1 for count in of_task),
            tasks_at_k=sum(count >= k for count in of_task),
            seconds=seconds,
            signals=signal_means(valid),
            tool_use=tool_use(valid),
        )


def is_success(trajectory: Trajectory) -> bool:
    """Return the environment's verdict on success, or else whether the rewards pass (`agentrl.env.rewards.passes`)."""
    if trajectory.is_unanswered:
        return False
    return passes(trajectory.signals) if trajectory.success is None else bool(trajectory.success.value)


def judgement_fault(trajectory: Trajectory) -> SampleFault | None:
    """Return why an episode does not count: it has no reward, no verdict on success, or no answer.

    Returns None if it counts.
    """
    fault, verdict = fault_of(trajectory), trajectory.success
    if fault is None and verdict is not None and not verdict.valid:
        return SampleFault("invalid", f"{verdict.name}: {verdict.reason}")
    return fault


def _refuse_other_versions(trajectories: Sequence[Trajectory], version: Version) -> None:
    others = {span.version for t in trajectories for s in t.segments for span in s.versions} - {version}
    if others:
        raise RunError(f"evaluation of version {version} was sampled by {', '.join(map(str, sorted(others)))} too")


async def _retried(call: Callable[[int], Awaitable[T]], what: str) -> T:
    """Return the result of `call(attempt)`, called again if a worker is lost."""
    for attempt in range(ATTEMPTS):
        try:
            return await call(attempt)
        except WorkerLostError as error:
            last = error
    raise RunError(f"{what} was lost {ATTEMPTS} times: {last}") from last
