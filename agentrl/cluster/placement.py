"""Where the processes of a run are: GPUs of their own, or the same ones by turns, and nodes of a kind.

A bundle is a group of GPUs that Ray reserves on one node: those of an engine, so that a tensor-parallel engine never
spans nodes, that of a learner rank, or of the reward models that share it. If engines and learner share GPUs, the ranks
own them and the engine of the same bundle uses them by turns. Reward models may use them too, and stay there. Not yet
verified on several GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from agentrl.config.schema import Config

ON_NODE = 0.001
"""How much of a resource that names nodes a process takes."""
Bundle = dict[str, float]


@dataclass(frozen=True)
class Place:
    """Where a process is: `bundle` of the reserved ones, its GPUs, the resource that its nodes have ("" for any)."""

    bundle: int | None = None
    gpus: float = 0.0
    nodes: str = ""


ANYWHERE = Place()


@dataclass(frozen=True)
class Placement:
    """The place of every process of a resolved configuration."""

    config: Config

    @property
    def is_shared(self) -> bool:
        """Whether engines and learner take turns on the same GPUs."""
        return self.config.engine.placement == "colocate"

    @property
    def bundles(self) -> list[Bundle] | None:
        """The resources to reserve at the start; None on CPUs, which are not reserved."""
        return [bundle for _, bundle in self._bundles()] if self._has_gpus else None

    @property
    def nodes(self) -> dict[str, str]:
        """The resources that name nodes of the run's processes, by the key that asks for each."""
        config = self.config
        has = {
            "engine": True,
            "rollout": True,
            "learner": config.learner.ranks > 0,
            "critic": config.critic.separate_ranks(config.learner) > 0,
            "scorers": config.scorers.placement == "separate",
            "reward": bool(config.reward.served),
        }
        asked = {f"{role}.nodes": getattr(config, role).nodes for role, exists in has.items() if exists}
        return {key: name for key, name in asked.items() if name}

    def engine(self, index: int) -> Place:
        """Return the place of an engine; one that shares GPUs gets their numbers from `Learners.devices`."""
        if not self._has_gpus:
            return Place(nodes=self.config.engine.nodes)
        return Place(self._index("engine", index), 0.0 if self.is_shared else self.gpus_per_engine)

    def rank(self, index: int) -> Place:
        """Return the place of a learner rank."""
        if not self._has_gpus:
            return Place(nodes=self.config.learner.nodes)
        if self.is_shared:
            return Place(self._index("engine", index // self.gpus_per_engine), 1.0)
        return Place(self._index("rank", index), 1.0)

    def sharers(self, engine: int) -> range:
        """Return the ranks whose GPUs an engine uses by turns."""
        per_engine = self.gpus_per_engine
        return range(engine * per_engine, (engine + 1) * per_engine) if self.is_shared else range(0)

    def worker(self) -> Place:
        """Return the place of a rollout worker."""
        return Place(nodes=self.config.rollout.nodes)

    def scorers(self) -> Place:
        """Return the place of scorers outside the learner's ranks."""
        if not self._has_gpus:
            return Place(nodes=self.config.scorers.nodes)
        return Place(self._index("scorers"), 1.0)

    def critic(self, index: int) -> Place:
        """Return the place of a rank of a separate critic."""
        if not self._has_gpus:
            return Place(nodes=self.config.critic.nodes)
        return Place(self._index("critic", index), 1.0)

    def role(self, index: int) -> Place:
        """Return the place of the engine of role model `index`."""
        if not self._has_gpus:
            return Place(nodes=self.config.engine.nodes)
        return Place(self._index("role", index), 1.0)

    def reward_model(self, index: int) -> Place:
        """Return the place of the served reward model `index`; one that shares a GPU gets its number from its rank."""
        if self.config.reward.is_shared:
            return replace(self.rank(self.rank_beside(index)), gpus=0.0)
        if not self._has_gpus:
            return Place(nodes=self.config.reward.nodes)
        return Place(self._index("reward", index // self.config.reward.on_gpu), self.config.reward.each)

    def rank_beside(self, reward_model: int) -> int:
        """Return the learner rank whose GPU a served reward model shares."""
        return reward_model % self.config.learner.ranks

    @property
    def gpus_per_engine(self) -> int:
        """The GPUs of an engine."""
        return self.config.engine.gpus

    @property
    def _has_gpus(self) -> bool:
        return self.config.device == "cuda"

    def _index(self, role: str, index: int = 0) -> int:
        return [name for name, _ in self._bundles()].index((role, index))

    def _bundles(self) -> Iterator[tuple[tuple[str, int], Bundle]]:
        """Yield ((role, index), resources) of each bundle."""
        config = self.config
        for index in range(config.engine.count):
            yield ("engine", index), _on(config.engine.nodes, self.gpus_per_engine)
        for index in range(0 if self.is_shared else config.learner.ranks):
            yield ("rank", index), _on(config.learner.nodes, 1.0)
        for index in range(config.critic.separate_ranks(config.learner)):
            yield ("critic", index), _on(config.critic.nodes, 1.0)
        if config.scorers.placement == "separate":
            yield ("scorers", 0), _on(config.scorers.nodes, 1.0)
        for index in range(len(config.role_models)):
            yield ("role", index), _on(config.engine.nodes, 1.0)
        for index, gpus in enumerate(config.reward.groups):
            yield ("reward", index), _on(config.reward.nodes, gpus)


def learner_only(config: Config) -> Config:
    """Return the configuration of a run whose only processes are its learner ranks, which score too."""
    keys: dict[str, dict[str, object]] = {
        "engine": {"placement": "separate", "count": 0},
        "scorers": {"placement": "colocate"},
        "reward": {"models": ()},
    }
    sections = {name: getattr(config, name).model_copy(update=section) for name, section in keys.items()}
    return config.model_copy(update={**sections, "env": ()})


def _on(nodes: str, gpus: float) -> Bundle:
    return {"GPU": gpus} | ({nodes: ON_NODE} if nodes else {})
