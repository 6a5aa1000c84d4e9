"""The processes of a run: their specifications, and the factories that run inside them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from agentrl.algorithms.base import RunShape
from agentrl.cluster.placement import Place, Placement
from agentrl.cluster.processes import this_host
from agentrl.cluster.ray.actors import ActorSpec, interface_of, node_address
from agentrl.config.machine import thread_variables
from agentrl.config.models import Models, locate, other_models
from agentrl.config.schema import POLICY, Config, RewardModelKeys, RoleKeys
from agentrl.endpoint import Ask
from agentrl.engine.client import EngineClient
from agentrl.engine.server import EngineServer
from agentrl.engine.vllm.engine import VllmEngine
from agentrl.engine.vllm.settings import VllmSpec
from agentrl.engine.wire import Transport
from agentrl.env import close_shared
from agentrl.errors import ConfigError, EngineDiedError, LearnerDiedError, WorkerLostError
from agentrl.records.folder import RunFolder
from agentrl.roles import RoleReply
from agentrl.roles.remote import Players
from agentrl.roles.replies import ReplyFiles
from agentrl.roles.spec import RoleSpec, specs_of
from agentrl.rollout.engine_player import JudgePlayer, SampledModel
from agentrl.rollout.worker import RolloutWorker, load_renderer_of, spare_collections
from agentrl.types import EpisodeRequest, Message, Trajectory

if TYPE_CHECKING:
    from agentrl.learner.critic_learner import CriticLearner
    from agentrl.learner.policy_learner import PolicyLearner
    from agentrl.learner.scorers import SeparateScorers
    from agentrl.learner.spec import LearnerSpec


SHARE = "put run folders and models on a file system that all machines of the cluster share (docs/scale-out.md)"


def engine_spec(config: Config, model: Path, scratch: Path, engine_id: int) -> ActorSpec:
    """Specify an engine; its sockets are under `scratch`."""
    spec = vllm_spec(config, model, str(scratch / str(engine_id)))
    return engine_actor(f"engine {engine_id}", spec, Placement(config).engine(engine_id))


def engine_actor(name: str, spec: VllmSpec, place: Place) -> ActorSpec:
    """Specify the process of a vLLM engine."""
    return ActorSpec(name, make_engine, (spec,), place=place, died=EngineDiedError)


def vllm_spec(config: Config, model: Path, scratch: str = "") -> VllmSpec:
    """Specify the vLLM engine of a resolved configuration."""
    return VllmSpec(
        model=str(model),
        engine=config.engine,
        dtype=config.model.dtype,
        max_model_len=config.model.max_context,
        seed=config.seed,
        transfer=config.weights.transfer,
        device=config.device,
        scratch=scratch,
        lora=config.lora,
    )


def make_engine(spec: VllmSpec, devices: Sequence[str] = ()) -> EngineServer:
    """Make a vLLM engine, not yet started; `devices` are the GPUs that it shares with learner ranks.

    Raises ConfigError if its host lacks the model.
    """
    check_visible(Path(spec.model))
    if devices:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    return EngineServer(VllmEngine(spec))


def check_visible(folder: Path) -> None:
    """Raise ConfigError if this host does not see a folder, or sees an empty one."""
    if not (folder.is_dir() and any(folder.iterdir())):
        raise ConfigError(f"the machine {this_host()} does not see {folder}: {SHARE}")


def check_marked(folder: Path, mark: str) -> None:
    """Raise ConfigError if this host sees no run folder, or another one than the driver has marked, such as a copy."""
    check_visible(folder)
    file = RunFolder(folder).mark
    if not file.is_file() or file.read_text() != mark:
        raise ConfigError(f"the machine {this_host()} has a folder {folder} of its own: {SHARE}")


def worker_spec(
    config: Config, model: Path, replies: ReplyFiles, engines: Mapping[str, Sequence[Transport]], worker_id: int
) -> ActorSpec:
    """Specify a rollout worker that samples from `engines`, known by their models; `replies` are those of roles."""
    roles = {env.label: tuple(specs_of(config.roles_of(env)).values()) for env in config.env}
    return ActorSpec(
        f"rollout worker {worker_id}",
        Worker,
        (
            f"worker-{worker_id}-{os.urandom(4).hex()}",
            {name: tuple(fleet) for name, fleet in engines.items()},
            config,
            str(model),
            roles,
            replies,
            worker_id,
        ),
        env={
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "CUDA_VISIBLE_DEVICES": "",
            "RAY_USE_UVLOOP": "0",  # the kind of loop on which `env check` and the dry run met the code
        },
        place=Placement(config).worker(),
        died=WorkerLostError,
    )


class Worker:
    """A rollout worker for each environment, with one client of the engines, alone in their process."""

    def __init__(
        self,
        name: str,
        engines: Mapping[str, Sequence[Transport]],
        config: Config,
        model: str,
        roles: Mapping[str, Sequence[RoleSpec]] = MappingProxyType({}),
        replies: ReplyFiles | None = None,
        worker_id: int = 0,
    ) -> None:
        """`roles` are those of each environment, `replies` the files of what they said."""
        spare_collections()
        self._clients = {model: EngineClient(fleet, name) for model, fleet in engines.items()}
        context, seed = config.model.max_context, config.seed
        self._players = Players(replies, worker_id)
        others = {
            name: SampledModel(load_renderer_of(str(locate(name))), self._clients[name], context)
            for name in config.role_models
        }
        sampled = dict(others)
        if any(not keys.has_engine for keys in config.reward.judges):
            sampled[POLICY] = SampledModel(load_renderer_of(model), self._clients[POLICY], context)
        self._judges = {
            keys.name: JudgePlayer(_judge_spec(keys, config.reward.score_timeout_s), sampled[keys.model or ""])
            for keys in config.reward.judges
        }
        self._workers = {
            env.label: RolloutWorker(
                env.name,
                env.options,
                model,
                self._clients[POLICY],
                context,
                seed,
                roles.get(env.label, ()),
                self._players,
                others,
                python=env.python,
                restarts=config.engine.restarts,
            )
            for env in config.env
        }

    async def run(self, request: EpisodeRequest) -> Trajectory:
        """Run one attempt at one sample; never raises an error of the env, the model or the engine."""
        return await self._workers[request.env].run(request)

    async def task_count(self, split: str) -> dict[str, int | None]:
        """Load the tasks of a split and return their number in each environment; None if they are endless."""
        return {label: await worker.task_count(split) for label, worker in self._workers.items()}

    async def with_group_rewards(self) -> set[str]:
        """Return the environments in which the trajectories of a group need `score_group` before they count."""
        return {label for label, worker in self._workers.items() if await worker.has_group_rewards()}

    async def score_group(self, trajectories: Sequence[Trajectory]) -> tuple[Trajectory, ...]:
        """Add the group rewards to the finished episodes of one group."""
        return await self._workers[trajectories[0].env].score_group(trajectories)

    async def judged(self, judge: str, question: str) -> RoleReply:
        """Return the reply of a judge on an engine. Raises RoleError or EngineError if there is none."""
        return await self._judges[judge].answer(Ask((Message(role="user", content=question),)), 0)

    async def close(self) -> None:
        """Cancel running episodes, wait for their teardown, close the shared resources. Idempotent."""
        await asyncio.gather(*(worker.stop() for worker in self._workers.values()))
        await close_shared()
        await self._players.aclose()

    async def engine_lost(self, engine_id: int, reason: str, model: str) -> None:
        """Send nothing more to an engine."""
        self._clients[model].lose(engine_id, reason)

    async def engine_restarted(self, engine_id: int, engine: Transport, model: str) -> None:
        """Send requests to `engine`, which replaces a lost one and serves weights."""
        self._clients[model].replace(engine_id, engine)


def _judge_spec(keys: RewardModelKeys, timeout_s: float) -> RoleSpec:
    role = RoleKeys(
        model=keys.model or "", max_context=keys.max_context, max_tokens=keys.max_tokens, timeout_s=timeout_s
    )
    return RoleSpec(keys.name, role)


def learner_spec(config: Config, model: Path, run: Path, mark: str, rank: int) -> ActorSpec:
    """Specify a learner rank of the run in a folder that was `marked`.

    Its `make` takes the address and port where the ranks meet.
    """
    place = Placement(config).rank(rank)
    return _torch_actor(f"learner rank {rank}", make_learner, config, model, (run, mark, rank), place)


def critic_spec(config: Config, model: Path, run: Path, mark: str, rank: int) -> ActorSpec:
    """Specify a rank of a separate critic, as `learner_spec` does one of the policy."""
    place = Placement(config).critic(rank)
    return _torch_actor(f"critic rank {rank}", make_critic, config, model, (run, mark, rank), place)


def scorers_spec(config: Config, model: Path) -> ActorSpec:
    """Specify the process of a reference and a teacher outside the learner's ranks."""
    return _torch_actor("scorers", make_scorers, config, model, (), Placement(config).scorers())


def _torch_actor(
    name: str, make: Callable[..., Any], config: Config, model: Path, args: tuple[Any, ...], place: Place
) -> ActorSpec:
    """Specify a process of models of the learner; `make` takes the configuration, the models and `args`."""
    models = Models(model, **{role: locate(name) for role, name in other_models(config).items()})
    # Large tensors in huge pages: fewer page faults in an update on a CPU (docs/performance.md).
    threads, huge_pages = thread_variables(config.learner.threads), {"THP_MEM_ALLOC_ENABLE": "1"}
    return ActorSpec(
        name,
        make,
        (config, models, *args),
        env={"TOKENIZERS_PARALLELISM": "false", **threads, **huge_pages},
        place=place,
        is_blocking=True,
        died=LearnerDiedError,
    )


def make_scorers(config: Config, models: Models) -> SeparateScorers:
    """Load the reference and the teacher."""
    from agentrl.learner.memory import keep_freed_memory
    from agentrl.learner.scorers import SeparateScorers

    if config.device == "cpu":
        keep_freed_memory()
    return SeparateScorers(_learner_spec(config, models))


def make_learner(
    config: Config, models: Models, run: Path, mark: str, rank: int, address: str, port: int
) -> PolicyLearner:
    """Make a learner rank. Raises ConfigError if its host lacks the run folder or the model."""
    spec = _rank_spec(config, models, run, mark)
    from agentrl.learner.policy_learner import PolicyLearner

    if config.device == "cpu":
        return PolicyLearner(spec, rank, config.learner.ranks, address, port)
    from agentrl.cluster.gpu_learner import GpuLearner
    from agentrl.weights.collective import Route

    workers = Placement(config).gpus_per_engine
    route = Route("ipc" if config.weights.transfer == "ipc" else "nccl", workers)
    return GpuLearner(spec, rank, config.learner.ranks, address, port, route)


def make_critic(
    config: Config, models: Models, run: Path, mark: str, rank: int, address: str, port: int
) -> CriticLearner:
    """Make a rank of a separate critic. Raises ConfigError if its host lacks the run folder or the model."""
    spec = _rank_spec(config, models, run, mark)
    from agentrl.learner.critic_learner import CriticLearner

    return CriticLearner(spec, rank, config.critic.separate_ranks(config.learner), address, port)


def _rank_spec(config: Config, models: Models, run: Path, mark: str) -> LearnerSpec:
    """Prepare this process for a rank of a process group, and return its specification."""
    check_marked(run, mark)
    check_visible(models.policy)
    if interface := interface_of(node_address()):  # gloo would resolve the host's name, often to 127.0.1.1
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    from agentrl.learner.memory import keep_freed_memory

    if config.device == "cpu":
        keep_freed_memory()
    return replace(_learner_spec(config, models), staging=run)


def _learner_spec(config: Config, models: Models) -> LearnerSpec:
    from agentrl.learner.spec import LearnerSpec

    return LearnerSpec(
        model=models.policy,
        critic_model=models.critic,
        teacher=models.teacher,
        scorers=config.scorers,
        steps=config.steps,
        dtype=config.model.dtype,
        device=config.device,
        learner=config.learner,
        critic=config.critic,
        algorithm=config.algorithm,
        run=RunShape.of(config),
        lora=config.lora,
        gradient_checkpointing=bool(config.model.gradient_checkpointing),
        yields_gpus=Placement(config).is_shared,
        bucket_bytes=config.weights.bucket_mib << 20,
    )
