"""The training loop in simulated time: the real scheduler, with simulated workers, engines and learner around it."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from agentrl.algorithms.base import RunShape
from agentrl.algorithms.driver import has_signal
from agentrl.algorithms.registry import make_algorithm
from agentrl.config.schema import Config
from agentrl.metrics.step import PhaseSeconds
from agentrl.metrics.timer import PhaseTimer
from agentrl.planning.simulation.cache import block_of
from agentrl.planning.simulation.calibration import Calibration
from agentrl.planning.simulation.clock import run
from agentrl.planning.simulation.cluster import SimulatedLearner, Speeds
from agentrl.planning.simulation.engine import SimulatedEngine
from agentrl.planning.simulation.worker import SimulatedWorker, SimulatedWorkers
from agentrl.planning.simulation.workload import Workload
from agentrl.rollout.groups import RolloutSettings
from agentrl.rollout.scheduler import Scheduler
from agentrl.training.rollouts import env_plans, rollout_settings
from agentrl.types import AttemptId, Batch, DropReason, EpisodeRequest, Trajectory, Version
from agentrl.types.outcomes import GroupOutcome

ENDLESS = 1 << 30
"""Steps of a simulated run, of which only the first are played: for its last ones less would be sampled."""


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """One simulated step: its seconds, the age of each trained sample, the samples dropped before it by outcome."""

    seconds: PhaseSeconds
    ages: tuple[int, ...]
    dropped: collections.Counter[DropReason]


@dataclass(frozen=True, slots=True)
class Played:
    """Some steps of a simulated run: the seconds in which its processes worked during them, and the extremes so far.

    `attempts` counts what was dispatched, came back, and was dropped since the start, by outcome.
    """

    steps: tuple[PlayedStep, ...]
    engines_s: float
    workers_s: float
    most_tokens: int
    most_requests: int
    attempts: collections.Counter[str]


class CountingLog:
    """Counts attempts in place of the journal of a real run."""

    def __init__(self) -> None:
        self.attempts: collections.Counter[str] = collections.Counter()

    def dispatched(self, requests: Iterable[EpisodeRequest]) -> None:
        """Count attempts that begin."""
        self.attempts["dispatched"] += len(list(requests))

    def finished(self, trajectory: Trajectory) -> None:  # noqa: ARG002 (the signature of an AttemptLog)
        """Count an attempt that came back."""
        self.attempts["finished"] += 1

    def settled(self, attempts: Iterable[AttemptId], outcome: DropReason, reason: str) -> None:  # noqa: ARG002
        """Count attempts that are not trained."""
        self.attempts[outcome] += len(list(attempts))

    def observed(self, outcome: GroupOutcome) -> None:
        """Do nothing: tasks are drawn from those of the recorded run, without a curriculum."""


class SimulatedRun:
    """A run in simulated time, whose loop has the verbs of `agentrl.training.session.Session`."""

    def __init__(self, calibration: Calibration, config: Config, speeds: Speeds, seed: int) -> None:
        self._version, self._log = Version(0, 0), CountingLog()
        settings = settings_of(config, seed)
        rates = calibration.engine.scaled(speeds.engine)
        places, block = config.engine.max_num_seqs, block_of(config)
        self.engines = [SimulatedEngine(rates, places, self._version, block) for _ in range(config.engine.count)]
        self.workers = [SimulatedWorker(self.engines, calibration.dispatch_s) for _ in range(config.rollout.workers)]
        workload = Workload(calibration.groups, config.rollout.group_size, seed)
        limits = {env.label: config.rollout_of(env).concurrency for env in config.env}
        dispatch = SimulatedWorkers(self.workers, workload, limits).dispatch
        algorithm = make_algorithm(config.algorithm, RunShape.of(config))
        signal = partial(has_signal, algorithm) if algorithm.config.filter_zero_variance else None
        self._scheduler = Scheduler(settings, dispatch, self._log, self._version, has_signal=signal)
        self._learner = SimulatedLearner(calibration, algorithm, speeds, self.engines, seed)
        loop = asyncio.get_running_loop()
        self._timer = PhaseTimer(now=loop.time)

    async def play(self, steps: int, start: int) -> Played:
        """Play the loop: sample, update, publish, rest. The first `start` steps are left out of the result."""
        self._timer.enter("other")
        self._scheduler.start()
        for _ in range(start):
            await self._step()
        engines_s, workers_s = self._busy_s()
        played = [await self._step() for _ in range(steps - start)]
        engines_end_s, workers_end_s = self._busy_s()
        await self._scheduler.stop()
        return Played(
            tuple(played),
            engines_end_s - engines_s,
            workers_end_s - workers_s,
            self._learner.most_tokens,
            sum(engine.peak for engine in self.engines),
            self._log.attempts,
        )

    def _busy_s(self) -> tuple[float, float]:
        """Return the seconds in which engines and workers have worked so far."""
        return sum(engine.busy_s() for engine in self.engines), sum(worker.busy_s for worker in self.workers)

    async def _step(self) -> PlayedStep:
        with self._timer.phase("rollout"):
            batch: Batch = await self._scheduler.next_batch(self._scheduler.settings.patience_s)
        with self._timer.phase("learn"):
            has_moved = await self._learner.update(batch)
        with self._timer.phase("publish"):
            if has_moved:
                self._version = self._version.next
                await self._learner.publish(self._version)
        self._scheduler.trained(self._version)
        await self._learner.rest()
        dropped = collections.Counter(sample.outcome for sample in batch.dropped)
        return PlayedStep(self._timer.lap(), batch.ages, dropped)


def settings_of(config: Config, seed: int) -> RolloutSettings:
    """Return the settings of the scheduler for a run without an end and without a curriculum.

    No share of invalid samples stops it: it repeats those of a run that went on.
    """
    rollout = config.rollout.model_copy(update={"curriculum": "none", "max_invalid": 1.0})
    config = config.model_copy(update={"rollout": rollout, "seed": seed, "steps": ENDLESS})
    algorithm = make_algorithm(config.algorithm, RunShape.of(config))
    plans = env_plans(config, {env.label: None for env in config.env})
    return rollout_settings(config, algorithm, plans)


def play(calibration: Calibration, config: Config, speeds: Speeds, steps: int, start: int = 0, seed: int = 0) -> Played:
    """Simulate the first steps of a run with this configuration; the result leaves out the first `start` of them."""

    async def simulated() -> Played:
        return await SimulatedRun(calibration, config, speeds, seed).play(steps, start)

    return run(simulated())
