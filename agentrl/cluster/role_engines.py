"""The engines of models that play roles or judge: started with the run, never trained."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from agentrl.cluster.engines import Engines
from agentrl.cluster.placement import Placement
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.relay import HostAgents, HostRelay
from agentrl.cluster.signals import Stop
from agentrl.cluster.specs import engine_actor, vllm_spec
from agentrl.cluster.workers import Workers
from agentrl.config.models import locate
from agentrl.config.schema import Config, LoraSection
from agentrl.records.restarts import Restarts
from agentrl.types import Version
from agentrl.weights.publisher import Publisher
from agentrl.weights.staging import stage_folder
from agentrl.weights.transfer import StagedTransfer


class RoleEngines:
    """The engine of one model, the one at `index` in `config.role_models`."""

    def __init__(
        self, cluster: Cluster, agents: HostAgents, config: Config, index: int, folder: Path, scratch: Path,
        workers: Workers, restarts: Restarts, stop: Stop,
    ) -> None:  # fmt: skip
        name, max_context = list(config.role_models.items())[index]
        model = locate(name)
        own = config.model_copy(
            update={
                "model": config.model.model_copy(update={"name": name, "max_context": max_context}),
                "engine": config.engine.alone,
                "weights": config.weights.model_copy(update={"transfer": "shm"}),
                "lora": LoraSection(),
            }
        )
        spec = vllm_spec(own, model, str(scratch / f"role-{index}"))
        actor = engine_actor(f"engine of {name}", spec, Placement(config).role(index))
        self.engines = Engines(cluster, lambda _: actor, own.engine, workers, restarts, stop, name)
        staged = partial(stage_folder, model, folder, own.weights.bucket_mib << 20)
        self._publisher = Publisher(
            self.engines, StagedTransfer(staged, HostRelay(agents)), own.weights.publish_timeout_s
        )

    async def start(self) -> None:
        """Wait until the engine serves the model; it is replaced from then on when it dies."""
        await self.engines.start()
        self.engines.watch(self._publisher.refill)
        async with self._publisher.lock:
            await self._publisher.publish(Version(0, 0))
