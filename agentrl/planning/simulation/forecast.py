"""Forecasts: what a simulation predicts for a configuration, and how well it predicts the recorded run itself."""

from __future__ import annotations

import collections
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agentrl.config.schema import Config
from agentrl.config.validate import counted
from agentrl.errors import ConfigError, DeadlineError
from agentrl.metrics.step import PhaseSeconds
from agentrl.planning.simulation.calibration import Calibration, calibrate
from agentrl.planning.simulation.changes import changed, cores_of
from agentrl.planning.simulation.cluster import MEASURED, by_threads, speeds
from agentrl.planning.simulation.loop import Played, play
from agentrl.planning.simulation.recorded import RecordedRun, read

STEPS = 40
MOST_STALENESS = 64
"""The largest `max_staleness` that is simulated: as many batches are sampled before the first one counts."""
LEAST_STEPS, MOST_SAMPLES = 4, 20_000
"""Steps of large batches are fewer: so many samples, the most of a batch, show as much."""
FAR = 1.5
"""How far beyond what was recorded a load may be before a note says so."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of `steps` steps: the mean, the 90th percentile, and the mean by phase."""

    steps: int
    mean_s: float
    p90_s: float
    phases: PhaseSeconds

    @classmethod
    def of(cls, seconds: Sequence[PhaseSeconds]) -> StepTimes:
        """Return the times of steps, real or simulated."""
        totals = sorted(each.total for each in seconds)
        phases = PhaseSeconds(*(statistics.fmean(getattr(s, name) for s in seconds) for name in PhaseSeconds.__slots__))
        return cls(len(totals), statistics.fmean(totals), totals[math.ceil(0.9 * len(totals)) - 1], phases)


@dataclass(frozen=True, slots=True)
class Layout:
    """The settings that a forecast is for."""

    max_staleness: int
    on_stale: str
    prompts: int
    group_size: int
    engines: int
    ranks: int
    workers: int
    placement: str

    @classmethod
    def of(cls, config: Config) -> Layout:
        """Return the settings in a configuration."""
        rollout, engine = config.rollout, config.engine
        sizes = rollout.max_staleness, rollout.on_stale, rollout.prompts, rollout.group_size
        return cls(*sizes, engine.count, config.learner.ranks, rollout.workers, engine.placement)


@dataclass(frozen=True, slots=True)
class Idle:
    """The share of the time in which the engines, the learner and the workers do nothing, each a mean over all."""

    engines: float
    learner: float
    workers: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """A prediction for one layout. Shares are between 0 and 1.

    `staleness[a]`: share of the trained samples whose oldest token is `a` updates old. `stale` and `filtered`: share of
    the samples that came back and were dropped for their age, or because their group had no signal or too few members.
    `notes` say where the prediction goes far beyond what was recorded.
    """

    layout: Layout
    times: StepTimes
    samples_per_s: float
    staleness: tuple[float, ...]
    idle: Idle
    stale: float
    filtered: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """The second half of a run's steps, beside their simulation by the first half.

    `replayed` has the speeds of the first half, but the episodes of the second: the rest of the error is due to
    episodes that changed while the policy learned.
    """

    first_step: int
    last_step: int
    real: StepTimes
    simulated: StepTimes
    replayed: StepTimes

    @property
    def error(self) -> float:
        """The relative error of the simulated mean."""
        return self.simulated.mean_s / self.real.mean_s - 1


def simulate(
    folder: Path, *, changes: Mapping[str, Any] = MappingProxyType({}), cores: int = 0, seed: int = 0
) -> Forecast:
    """Predict the steps of a recorded run after `changes` of its configuration.

    `cores`: those of the machine, for a run on CPUs (0: as many as recorded). Raises ConfigError for a folder that a
    simulation cannot be calibrated by, and for changes that it cannot follow.
    """
    run = read(folder)
    return forecast(calibrate(run, run.plain_steps), changed(run.config, changes, cores), cores, seed=seed)


def check(run: RecordedRun, seed: int = 0) -> Check:
    """Calibrate by the first half of a run's steps and simulate the second.

    Raises ConfigError if the first half shows too little.
    """
    plain = run.plain_steps
    first, second = plain[: len(plain) // 2], plain[len(plain) // 2 :]
    by_first = calibrate(run, first)
    by_second = replace(by_first, groups=tuple(run.groups(second)))
    simulated, replayed = (forecast(each, run.config, seed=seed).times for each in (by_first, by_second))
    real = StepTimes.of([step.seconds for step in second])
    return Check(second[0].step, second[-1].step, real, simulated, replayed)


def forecast(calibration: Calibration, config: Config, cores: int = 0, steps: int = STEPS, seed: int = 0) -> Forecast:
    """Simulate so many steps of a configuration, after those in which the first batches are on their way.

    Raises ConfigError for a run that `check_size` refuses, and for one that would stop because no batch is complete in
    time.
    """
    recorded, age = calibration.run.config, config.rollout.max_staleness
    check_size(config)
    speed = speeds(recorded, config, cores or cores_of(recorded))
    steps = min(steps, max(LEAST_STEPS, MOST_SAMPLES // config.rollout.samples))
    try:
        played = play(calibration, config, speed, age + 1 + steps, age + 1, seed)
    except DeadlineError as error:
        why = str(error).partition(":")[0]
        raise ConfigError(
            f"a run with engine.count {config.engine.count}, learner.ranks {config.learner.ranks} and rollout.workers "
            f"{config.rollout.workers} would stop: {why}. Change fewer settings"
        ) from None
    ages = collections.Counter(age for step in played.steps for age in step.ages)
    trained, came_back = ages.total(), ages.total() + sum(step.dropped.total() for step in played.steps)
    total_s = math.fsum(step.seconds.total for step in played.steps)
    learn_s = math.fsum(step.seconds.learn for step in played.steps)
    idle = Idle(
        1 - played.engines_s / total_s / config.engine.count,
        1 - learn_s / total_s,
        1 - played.workers_s / total_s / config.rollout.workers,
    )
    return Forecast(
        Layout.of(config),
        StepTimes.of([step.seconds for step in played.steps]),
        trained / total_s,
        tuple(ages[age] / trained for age in range(max(ages) + 1)),
        idle,
        sum(step.dropped["stale"] for step in played.steps) / came_back,
        sum(step.dropped["filtered"] for step in played.steps) / came_back,
        tuple(notes(calibration, config, played)),
    )


def check_size(config: Config) -> None:
    """Raise ConfigError for a run that would take minutes to simulate."""
    rollout = config.rollout
    if (age := rollout.max_staleness) > MOST_STALENESS:
        raise ConfigError(f"rollout.max_staleness {age}: a simulation plays at most {MOST_STALENESS}, lower it")
    if rollout.samples > MOST_SAMPLES:
        raise ConfigError(
            f"rollout.prompts {rollout.prompts} x rollout.group_size {rollout.group_size}: a simulation plays batches "
            f"of at most {MOST_SAMPLES} samples, lower one of them"
        )


def notes(calibration: Calibration, config: Config, played: Played) -> Iterator[str]:
    """Yield where a prediction goes far beyond what was recorded."""
    recorded = calibration.run.config
    requests, most = played.most_requests / config.engine.count, calibration.most_requests / recorded.engine.count
    if requests > FAR * most:
        yield f"an engine has {requests:.0f} requests at once, {requests / most:.1f} times as many as recorded"
    tokens, most = played.most_tokens / config.learner.ranks, calibration.most_tokens / recorded.learner.ranks
    if tokens > FAR * most:
        yield f"a learner rank trains {tokens:.0f} tokens in a step, {tokens / most:.1f} times as many as recorded"
    for name, new, old in (
        ("an engine", config.engine.threads, recorded.engine.threads),
        ("a learner rank", config.learner.threads, recorded.learner.threads),
    ):
        if config.device == "cpu" and new != old:
            threads, speed = counted(new, "thread"), by_threads(new, old)
            note = f"{name} has {threads}, not {old} as recorded, and is taken to be {speed:.2g} times as fast"
            is_assumed = max(new, old) > MEASURED
            yield f"{note}, an assumption: it was measured with up to {MEASURED} threads" if is_assumed else note
    if (config.engine.placement == "colocate") != (recorded.engine.placement == "colocate"):
        yield "how long engines and learner take to hand GPUs to each other was not recorded for this engine.placement"
