"""The simulated cluster: how fast engines and learner are in a configuration, and the parts of a run on it."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from agentrl.algorithms.base import Algorithm
from agentrl.config.schema import Config
from agentrl.planning.simulation.calibration import Calibration, trained_tokens
from agentrl.planning.simulation.changes import cores_of
from agentrl.planning.simulation.engine import SimulatedEngine
from agentrl.types import Batch, Version


@dataclass(frozen=True, slots=True)
class Speeds:
    """How fast the parts are in one configuration, relative to another: an engine, an update, a token of an update."""

    engine: float = 1.0
    update: float = 1.0
    token: float = 1.0


GAIN = 1.5
"""How many times as fast an engine or a rank on a CPU is with twice the threads (docs/performance.md)."""
MEASURED = 2
"""The most threads for which that was measured. The same gain is assumed for each further doubling."""


def speeds(recorded: Config, config: Config, cores: int) -> Speeds:
    """Return the speeds of `config` relative to the recorded run, on a machine with so many `cores`.

    Learner ranks share the tokens of a batch. On CPUs engines and ranks are slower if those that compute at the same
    time have more threads than there are cores. GPUs are taken to be the recorded ones.
    """
    ranks = config.learner.ranks / recorded.learner.ranks
    if config.device != "cpu":
        return Speeds(token=ranks)
    engine = by_threads(config.engine.threads, recorded.engine.threads)
    learner = by_threads(config.learner.threads, recorded.learner.threads)
    before, after = crowding(recorded, max(cores, cores_of(recorded))), crowding(config, cores)
    engine, learner = engine * before[0] / after[0], learner * before[1] / after[1]
    return Speeds(engine, learner, learner * ranks)


def by_threads(threads: int, recorded: int) -> float:
    """Return how many times as fast as recorded an engine or a rank on a CPU is with so many threads."""
    return float(GAIN ** math.log2(threads / recorded))


def crowding(config: Config, cores: int) -> tuple[float, float]:
    """Return by how many times the threads that compute at the same time as engines, and as ranks, exceed the cores.

    It is at least 1. Engines and ranks that take turns slow only their own kind. A critic's own ranks train beside the
    policy's.
    """
    ranks = config.learner.ranks + config.critic.separate_ranks(config.learner)
    engines, learner = config.engine.count * config.engine.threads, ranks * config.learner.threads
    if config.rollout.max_staleness:
        engines = learner = engines + learner
    return max(1.0, engines / cores), max(1.0, learner / cores)


class SimulatedLearner:
    """Trains batches and publishes; its seconds are the fitted ones with noise drawn from the recorded ones."""

    def __init__(
        self,
        calibration: Calibration,
        algorithm: Algorithm,
        speed: Speeds,
        engines: Sequence[SimulatedEngine],
        seed: int,
    ) -> None:
        self._calibration, self._algorithm, self._speed, self._engines = calibration, algorithm, speed, engines
        self._random = random.Random(seed)
        self.most_tokens = 0

    async def update(self, batch: Batch) -> bool:
        """Train a batch; returns whether there was anything to learn."""
        tokens = trained_tokens(self._algorithm, batch.groups)
        rates, speed = self._calibration.learner, self._speed
        self.most_tokens = max(self.most_tokens, tokens.total)
        if tokens.total:
            seconds = rates.update_s / speed.update + rates.tokens_s(tokens) / speed.token
            await asyncio.sleep(seconds * self._random.choice(rates.noise))
        return tokens.total > 0

    async def publish(self, version: Version) -> None:
        """Let every engine sample with new weights; none samples meanwhile."""
        for engine in self._engines:
            engine.pause()
        await asyncio.sleep(self._random.choice(self._calibration.publish_s))
        for engine in self._engines:
            engine.resume(version)

    async def rest(self) -> None:
        """Take the time that the driver spends between steps."""
        await asyncio.sleep(self._random.choice(self._calibration.other_s))
