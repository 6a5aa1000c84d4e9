"""What each process of a run is made of: the factories that run inside it, and how the run calls it."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from agentrl.cluster.ray import ActorHandle, ActorSpec
from agentrl.config.schema import Config
from agentrl.engine.client import Answer, EngineClient, EngineServer, Request
from agentrl.engine.vllm import VllmEngine, VllmSpec, environment
from agentrl.errors import EngineDiedError, LearnerDiedError, WorkerLostError
from agentrl.learner.protocol import Learner
from agentrl.rollout.worker import RolloutWorker
from agentrl.types import Capabilities, Completion, Prompt, Sampling, Version, WeightManifest

MARGIN_S = 10.0
LEARNER_SHARE = 0.5  # of a GPU that it shares with an engine: the two take turns, the number only places them


class RemoteEngine:
    """An EngineServer in another process: an Engine to the run, a Transport to the rollout workers."""

    def __init__(self, remote: ActorHandle) -> None:
        self.remote = remote

    async def _call(self, method: str, *args: Any, deadline_s: float) -> Any:
        return await self.remote.call(method, *args, deadline_s, deadline_s=deadline_s + MARGIN_S)

    async def start(self, deadline_s: float) -> Capabilities:
        """See `Engine.start`."""
        capabilities: Capabilities = await self._call("start", deadline_s=deadline_s)
        return capabilities

    async def generate(self, prompt: Prompt, sampling: Sampling, deadline_s: float) -> Completion:
        """See `Engine.generate`; rollout workers go through `submit` and `collect`."""
        completion: Completion = await self._call("generate", prompt, sampling, deadline_s=deadline_s)
        return completion

    async def score(self, ids: tuple[int, ...], deadline_s: float) -> tuple[float, ...]:
        """See `Engine.score`."""
        logprobs: tuple[float, ...] = await self._call("score", ids, deadline_s=deadline_s)
        return logprobs

    async def pause(self, deadline_s: float) -> None:
        """See `Engine.pause`."""
        await self._call("pause", deadline_s=deadline_s)

    async def resume(self, deadline_s: float) -> None:
        """See `Engine.resume`."""
        await self._call("resume", deadline_s=deadline_s)

    async def sleep(self, deadline_s: float) -> None:
        """See `Engine.sleep`."""
        await self._call("sleep", deadline_s=deadline_s)

    async def wake(self, deadline_s: float) -> None:
        """See `Engine.wake`."""
        await self._call("wake", deadline_s=deadline_s)

    async def init_transfer(self, info: dict[str, Any], deadline_s: float) -> None:
        """See `Engine.init_transfer`."""
        await self._call("init_transfer", info, deadline_s=deadline_s)

    async def start_update(self, deadline_s: float) -> None:
        """See `Engine.start_update`."""
        await self._call("start_update", deadline_s=deadline_s)

    async def load(self, bucket: dict[str, Any], deadline_s: float) -> None:
        """See `Engine.load`."""
        await self._call("load", bucket, deadline_s=deadline_s)

    async def finish_update(self, manifest: WeightManifest, deadline_s: float) -> None:
        """See `Engine.finish_update`."""
        await self._call("finish_update", manifest, deadline_s=deadline_s)

    async def version(self) -> Version | None:
        """See `Engine.version`."""
        version: Version | None = await self.remote.call("version", deadline_s=MARGIN_S)
        return version

    async def check(self, deadline_s: float) -> None:
        """See `Engine.check`."""
        await self._call("check", deadline_s=deadline_s)

    async def pids(self) -> list[int]:
        """The engine's processes."""
        processes = await self.remote.call("pids", deadline_s=MARGIN_S)
        return [process.pid for process in processes]

    async def close(self, deadline_s: float = MARGIN_S) -> None:
        """See `Engine.close`; its processes end with the actor when this takes too long."""
        await self.remote.call("close", deadline_s=deadline_s)

    async def submit(self, client: str, requests: Sequence[Request]) -> None:
        """See `Transport.submit`."""
        await self.remote.call("submit", client, requests, deadline_s=MARGIN_S * 6)

    async def collect(self, client: str, timeout_s: float) -> list[Answer]:
        """See `Transport.collect`."""
        outcomes: list[Answer] = await self.remote.call(
            "collect", client, timeout_s, deadline_s=timeout_s + MARGIN_S * 6
        )
        return outcomes

    async def cancel(self, client: str, numbers: Sequence[int]) -> None:
        """See `Transport.cancel`."""
        await self.remote.call("cancel", client, numbers, deadline_s=MARGIN_S * 6)


# --------------------------------------------------------------------------------------------------------------
# The factories: what they return lives in the role's process.


def make_engine(spec: VllmSpec) -> EngineServer:
    """A vLLM engine, not yet started."""
    return EngineServer(VllmEngine(spec))


class Worker(RolloutWorker):
    """A rollout worker with its client of the engines."""

    def __init__(self, name: str, engines: Sequence[ActorHandle], **settings: Any) -> None:
        self._client = EngineClient([RemoteEngine(engine) for engine in engines], name)
        super().__init__(engine=self._client, **settings)

    async def engine_lost(self, place: int, reason: str) -> None:
        """Send nothing more to engine number `place`."""
        self._client.lose(place, reason)

    async def engine_restarted(self, place: int, engine: ActorHandle) -> None:
        """`engine` serves weights in the place of number `place`."""
        self._client.restarted(place, RemoteEngine(engine))


def is_shared(config: Config) -> bool:
    """True when engine i and learner rank i take turns on one GPU. Not yet verified on a GPU."""
    return config.engine.placement == "colocate"


def engine_spec(config: Config, model: str, place: int, scratch: Path) -> ActorSpec:
    """Engine number `place`; its sockets lie under `scratch`."""
    engine = config.engine
    spec = VllmSpec(
        model=model,
        dtype=config.model.dtype,
        max_model_len=config.model.max_context,
        max_num_seqs=engine.max_num_seqs,
        tensor_parallel=engine.tensor_parallel,
        threads=engine.threads,
        kv_cache_gib=engine.kv_cache_gib,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        enforce_eager=bool(engine.enforce_eager),
        prefix_caching=engine.prefix_caching,
        seed=config.seed,
        transfer=config.weights.transfer,
        device=config.device,
        scratch=str(scratch / str(place)),
    )
    return ActorSpec(
        f"engine {place}",
        make_engine,
        (spec,),
        env=environment(spec, sorted(os.sched_getaffinity(0))),
        gpus=1 - LEARNER_SHARE if is_shared(config) else float(engine.tensor_parallel * (config.device == "cuda")),
        bundle=place if is_shared(config) else None,
        died=EngineDiedError,
    )


def worker_spec(config: Config, model: str, place: int, engines: Sequence[ActorHandle]) -> ActorSpec:
    """Rollout worker number `place`, in front of these engines."""
    return ActorSpec(
        f"rollout worker {place}",
        make_worker,
        (f"worker-{place}-{os.urandom(4).hex()}", tuple(engines), config, model),
        env={"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""},
        died=WorkerLostError,
    )


def make_worker(name: str, engines: Sequence[ActorHandle], config: Config, model: str) -> Worker:
    """A rollout worker. What its imports made is never garbage, and thousands of episodes make little that is."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    return Worker(
        name,
        engines,
        env=config.env.name,
        env_options=config.env.options,
        model=model,
        max_context=config.model.max_context,
        seed=config.seed,
    )


def learner_spec(config: Config, model: Path, staging: Path, rank: int) -> ActorSpec:
    """Rank `rank` of the learner; its `make` takes the address and port where the ranks meet."""
    return ActorSpec(
        f"learner rank {rank}",
        make_learner,
        (config, model, staging, rank),
        # Large tensors in huge pages: fewer page faults in an update on a CPU (docs/performance.md).
        env={
            "OMP_NUM_THREADS": str(config.learner.threads),
            "THP_MEM_ALLOC_ENABLE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        },
        gpus=LEARNER_SHARE if is_shared(config) else float(config.device == "cuda"),
        bundle=rank if is_shared(config) else None,
        is_blocking=True,
        died=LearnerDiedError,
    )


def make_learner(config: Config, model: Path, staging: Path, rank: int, address: str, port: int) -> Learner:
    """One rank of the learner."""
    from agentrl.learner.policy import PolicyLearner
    from agentrl.learner.spec import LearnerSpec

    spec = LearnerSpec(
        model=model,
        steps=config.steps,
        dtype=config.model.dtype,
        device=config.device,
        learner=config.learner,
        algorithm=config.algorithm,
        gradient_checkpointing=config.model.gradient_checkpointing,
        staging=staging,
        bucket_bytes=config.weights.bucket_mib << 20,
    )
    if config.device == "cpu":
        return PolicyLearner(spec, rank, config.learner.ranks, address, port)
    from agentrl.cluster.sending import Route, SendingLearner

    backend: Literal["nccl", "ipc"] = "ipc" if config.weights.transfer == "ipc" else "nccl"
    return SendingLearner(
        spec, rank, address, port, Route(backend, config.learner.ranks, config.engine.tensor_parallel)
    )
