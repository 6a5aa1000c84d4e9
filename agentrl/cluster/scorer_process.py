"""The reference and the teacher of a run in a process of their own, which is replaced when it dies."""

from __future__ import annotations

from agentrl.algorithms.base import RunShape
from agentrl.algorithms.registry import make_algorithm
from agentrl.algorithms.sample import Array, Column, TrainSequence
from agentrl.cluster.ray.actors import ActorSpec
from agentrl.cluster.ray.cluster import Cluster
from agentrl.config.schema import Config
from agentrl.errors import DeadlineError, LearnerDiedError
from agentrl.records.restarts import Restarts


def separate_columns(config: Config) -> frozenset[Column]:
    """Return the columns that models outside the learner's ranks compute."""
    if config.scorers.placement != "separate":
        return frozenset()
    algorithm = make_algorithm(config.algorithm, RunShape.of(config))
    return algorithm.frozen_columns(has_adapters=bool(config.lora.rank))


class ScorerProcess:
    """The process of frozen models, which compute `columns`.

    Its answer depends on the call alone. If it dies or misses a deadline, it is replaced and called again. A second
    deadline in a row stops the run: the work takes longer than it has.
    """

    def __init__(
        self, cluster: Cluster, spec: ActorSpec, columns: frozenset[Column], restarts: Restarts, start_s: float
    ) -> None:
        self._cluster, self._spec, self.columns, self.name = cluster, spec, columns, spec.name
        self._start_s = start_s
        self._restarts = restarts
        self._actor = cluster.spawn(spec)

    async def start(self) -> None:
        """Wait until the models are loaded."""
        self._cluster.register(await self._actor.make(deadline_s=self._start_s))

    async def score(
        self, batch: list[TrainSequence], columns: list[Column], deadline_s: float
    ) -> dict[Column, dict[int, Array]]:
        """Compute columns for every sequence of the batch: {column: {index in the batch: values [A]}}."""
        why, is_late = "", False
        while True:
            try:
                if why:
                    await self._replace()
                scores: dict[Column, dict[int, Array]] = await self._actor.call(
                    "score", batch, columns, deadline_s=deadline_s
                )
                return scores
            except (LearnerDiedError, DeadlineError) as error:
                self._restarts.lost("scorers", {self._spec.name: self._actor.host}, str(error))
                if isinstance(error, DeadlineError) and is_late:
                    raise
                why, is_late = str(error), isinstance(error, DeadlineError)

    async def _replace(self) -> None:
        self._actor.kill()
        self._actor = self._cluster.spawn(self._spec)
        await self.start()
        self._restarts.back(self._spec.name)
