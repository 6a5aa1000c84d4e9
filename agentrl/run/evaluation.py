"""Evaluation: one version on held-out tasks, outside the buffer and the ledger."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentrl.errors import RunError
from agentrl.rollout.orders import EpisodeOrder
from agentrl.rollout.scheduler import WorkerLostError, stable_hash
from agentrl.run.record import EvaluationRecord, signal_means, tool_use
from agentrl.run.statistics import score
from agentrl.run.store import TrajectoryStore
from agentrl.types import SampleId, Trajectory, Version

ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What is evaluated: the first `tasks` tasks of `split`, `samples` episodes of each, the same seeds every time."""

    split: str
    tasks: int
    samples: int
    k: int
    seed: int
    temperature: float
    max_tokens: int
    max_turns: int
    episode_timeout_s: float
    turn_timeout_s: float

    def order(self, sample: SampleId, attempt: int = 0) -> EpisodeOrder:
        """The order for one sample; its randomness is not that of training."""
        seed = stable_hash(self.seed, "evaluation")
        return EpisodeOrder(
            sample, attempt, self.split, sample.group, seed, self.temperature, self.max_tokens, self.max_turns,
            self.episode_timeout_s, self.turn_timeout_s,
        )  # fmt: skip

    async def run(
        self, dispatch: Callable[[EpisodeOrder], Awaitable[Trajectory]], step: int, version: Version, folder: Path
    ) -> EvaluationRecord:
        """Run every episode and store it in `folder`. Raises RunError when none is valid or versions are mixed."""
        began = time.monotonic()
        samples = [SampleId(task, member) for task in range(self.tasks) for member in range(self.samples)]
        trajectories = await _gather([self._one(dispatch, sample) for sample in samples])
        shutil.rmtree(
            folder, ignore_errors=True
        )  # what an earlier incarnation evaluated at this step is of another lineage
        store = TrajectoryStore(folder)
        store.append(trajectories)
        store.close()
        self._refuse(trajectories, version)
        return self._record(trajectories, step, version, time.monotonic() - began)

    async def _one(self, dispatch: Callable[[EpisodeOrder], Awaitable[Trajectory]], sample: SampleId) -> Trajectory:
        for attempt in range(ATTEMPTS):
            try:
                return await dispatch(self.order(sample, attempt))
            except WorkerLostError as error:
                if attempt + 1 == ATTEMPTS:
                    raise RunError(f"evaluation of sample {sample} was lost {ATTEMPTS} times: {error}") from error
        raise AssertionError("unreachable")

    def _refuse(self, trajectories: Sequence[Trajectory], version: Version) -> None:
        others = {span.version for t in trajectories for s in t.segments for span in s.versions} - {version}
        if others:
            raise RunError(f"evaluation of version {version} was sampled by {', '.join(map(str, sorted(others)))} too")
        if not any(t.is_valid for t in trajectories):
            errors = [t.error or str(t.stop_reason) for t in trajectories]
            raise RunError(f"no valid episode among {len(trajectories)} in the evaluation; the first: {errors[:1]}")

    def _record(
        self, trajectories: Sequence[Trajectory], step: int, version: Version, seconds: float
    ) -> EvaluationRecord:
        valid = [t for t in trajectories if t.is_valid]
        counts: dict[int, list[bool]] = {task: [] for task in range(self.tasks)}
        for trajectory in valid:
            counts[trajectory.sample.group].append(is_success(trajectory))
        right, drawn = [sum(passes) for passes in counts.values()], [len(passes) for passes in counts.values()]
        k = self.k or self.samples
        return EvaluationRecord(
            step=step,
            version=str(version),
            at=time.time(),
            split=self.split,
            tasks=self.tasks,
            samples=self.samples,
            pass_at_1=score(right, drawn, 1, self.seed),
            pass_at_k=score(right, drawn, k, self.seed),
            k=k,
            reward_mean=statistics.fmean(t.reward for t in valid),
            length_mean=statistics.fmean(t.action_tokens for t in valid),
            invalid=len(trajectories) - len(valid),
            seconds=seconds,
            signals=signal_means(valid),
            tool_use=tool_use(valid),
        )


def is_success(trajectory: Trajectory) -> bool:
    """A pass: the episode's and group's signals reach at least half of what their weights allow (values up to 1)."""
    signals = [s for s in trajectory.signals if s.value is not None and s.scope != "turn"]
    best = sum(s.weight for s in signals if s.weight > 0)
    return sum(s.weight * (s.value or 0.0) for s in signals) >= 0.5 * best > 0


async def _gather(calls: Sequence[Awaitable[Trajectory]]) -> list[Trajectory]:
    """All results; the first failure cancels the rest."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_as_coroutine(call)) for call in calls]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


async def _as_coroutine(call: Awaitable[Trajectory]) -> Trajectory:
    return await call
