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


def speeds(recorded: Config, config: Config, cores: int) -> Speeds:
    """Return the speeds of `config` relative to the recorded run, on a machine with so many `cores`.

    Learner ranks share the tokens of a batch. On CPUs all engines and ranks are slower if together they have more
    threads than there are cores. GPUs are taken to be the recorded ones.
    """
    ranks = config.learner.ranks / recorded.learner.ranks
    if config.device != "cpu":
        return Speeds(token=ranks)
    engine = by_threads(config.engine.threads, recorded.engine.threads)
    learner = by_threads(config.learner.threads, recorded.learner.threads)
    share = crowding(recorded, cores) / crowding(config, cores)
    return Speeds(engine * share, learner * share, learner * ranks * share)


def by_threads(threads: int, recorded: int) -> float:
    """Return how many times as fast as recorded an engine or a rank on a CPU is with so many threads."""
    return float(GAIN ** math.log2(threads / recorded))


def crowding(config: Config, cores: int) -> float:
    """Return by how many times the threads that compute at the same time exceed the cores; at least 1."""
    engines, learner = config.engine.count * config.engine.threads, config.learner.ranks * config.learner.threads
    return max(1.0, (engines + learner if config.rollout.max_staleness else max(engines, learner)) / cores)


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
