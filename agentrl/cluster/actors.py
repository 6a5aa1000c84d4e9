"""The processes of a run: engines, workers, learner ranks and reward models, started together and ended together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agentrl.cluster.engines import Engines
from agentrl.cluster.learners import Learners
from agentrl.cluster.leftovers import clean_host, scratch_of
from agentrl.cluster.placement import Placement, learner_only
from agentrl.cluster.processes import ProcessRegistry
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.relay import HostAgents
from agentrl.cluster.reward_models import RewardModels
from agentrl.cluster.role_engines import RoleEngines
from agentrl.cluster.scorer_process import ScorerProcess, separate_columns
from agentrl.cluster.signals import Stop, to_the_end, together
from agentrl.cluster.specs import critic_spec, engine_spec, learner_spec, scorers_spec, worker_spec
from agentrl.cluster.workers import Fleets, Workers
from agentrl.config.schema import POLICY, Config
from agentrl.errors import RunError
from agentrl.metrics.timer import PhaseTimer
from agentrl.records.folder import RunFolder, marked
from agentrl.records.jsonl import closing
from agentrl.records.restarts import Restarts
from agentrl.roles import RoleReply
from agentrl.roles.replies import ReplyFiles
from agentrl.rollout.slots import Slots

REMOTE_S = 30.0


@dataclass(frozen=True)
class Actors:
    """Actors of a run (an evaluation has no learners)."""

    engines: Engines
    workers: Workers
    learners: Learners
    reward_models: RewardModels
    agents: HostAgents
    role_engines: tuple[RoleEngines, ...] = ()

    @property
    def fleets(self) -> Fleets:
        """The engines by the model that they serve."""
        others = {each.engines.model: each.engines.current for each in self.role_engines}
        return {POLICY: self.engines.current, **others}


@asynccontextmanager
async def actors(
    config: Config,
    model: Path,
    folder: RunFolder,
    stop: Stop,
    timer: PhaseTimer,
    note: Callable[[str], None],
    *,
    learns: bool = True,
) -> AsyncIterator[Actors]:
    """Start the actors; on exit every process has ended. `note` shows the user which processes are replaced."""
    registry = ProcessRegistry(folder.path)
    with timer.part("ray"):
        placement = Placement(config)
        cluster = Cluster(f"agentrl-{folder.path.name}", registry, placement.bundles, placement.nodes)
    try:
        await stop.cut(timer.timed("ray", cluster.ready(config.engine.start_timeout_s, note)))
        await stop.cut(cluster.on_other_hosts(clean_host, folder.path, deadline_s=REMOTE_S))
        with closing(Restarts(folder, config.engine.restarts, note)) as restarts:
            team = _spawned(cluster, config, model, folder, restarts, stop, learns=learns)
            try:
                await stop.cut(_started(team, timer, learns=learns))
                yield team
            finally:
                timer.enter("close")
                await to_the_end(_ended(team, registry))
    finally:
        await to_the_end(_closed(cluster, folder.path))


@asynccontextmanager
async def learner_ranks(
    config: Config, model: Path, folder: RunFolder, stop: Stop, timer: PhaseTimer
) -> AsyncIterator[Learners]:
    """Start the learner ranks alone, which score too; on exit every process has ended."""
    config = learner_only(config)
    placement = Placement(config)
    nodes = {key: name for key, name in placement.nodes.items() if key in ("learner.nodes", "critic.nodes")}
    cluster = Cluster(f"agentrl-{folder.path.name}", ProcessRegistry(folder.path), placement.bundles, nodes)
    try:
        await stop.cut(timer.timed("ray", cluster.ready(config.engine.start_timeout_s)))
        learners = _learners(cluster, config, model, folder)
        await stop.cut(learners.start())
        yield learners
    finally:
        await to_the_end(_closed(cluster, folder.path))


def _spawned(
    cluster: Cluster, config: Config, model: Path, folder: RunFolder, restarts: Restarts, stop: Stop, *, learns: bool
) -> Actors:
    replies = ReplyFiles.begun(folder.replies, config.rollout.workers)
    spec_of = partial(worker_spec, config, model, replies)

    async def ask(judge: str, question: str) -> RoleReply:
        return await workers.judged(judge, question, config.reward.score_timeout_s)

    async def gpus_of(reward_model: str) -> list[str]:
        """Return the GPUs of the learner rank that a served reward model shares."""
        index = [keys.name for keys in config.reward.served].index(reward_model)
        return await learners.policy.devices([placement.rank_beside(index)])

    placement = Placement(config)
    shared = gpus_of if config.reward.is_shared and config.device == "cuda" else None
    reward_models = RewardModels(cluster, config, model, restarts, stop, ask, shared)
    rewarded = reward_models.rewarded if config.reward.models else None
    rollouts = {env.label: config.rollout_of(env) for env in config.env}
    slots = Slots({label: rollout.concurrency for label, rollout in rollouts.items()})
    patience_s = max((keys.timeout_s for env in config.env for keys in config.roles_of(env).values()), default=0.0)
    workers = Workers(cluster, spec_of, config.rollout.workers, restarts, slots, rewarded, patience_s)
    scorers = _scorers(cluster, config, model, restarts) if learns else None
    learners = _learners(cluster, config, model, folder, scorers, learns=learns)
    engine_spec_of = partial(engine_spec, config, model, scratch_of(folder.path))
    devices = (lambda engine_id: learners.policy.devices(placement.sharers(engine_id))) if placement.is_shared else None
    engines = Engines(cluster, engine_spec_of, config.engine, workers, restarts, stop, devices=devices)
    agents = HostAgents(cluster, folder.path)
    role_engines = tuple(
        RoleEngines(cluster, agents, config, index, folder.path, scratch_of(folder.path), workers, restarts, stop)
        for index in range(len(config.role_models))
    )
    return Actors(engines, workers, learners, reward_models, agents, role_engines)


def _learners(
    cluster: Cluster,
    config: Config,
    model: Path,
    folder: RunFolder,
    scorers: ScorerProcess | None = None,
    *,
    learns: bool = True,
) -> Learners:
    ranks = (config.learner.ranks, config.critic.separate_ranks(config.learner)) if learns else (0, 0)
    mark = marked(folder) if learns else ""
    policy, critic = (
        [spec_of(config, model, folder.path, mark, rank) for rank in range(number)]
        for spec_of, number in zip((learner_spec, critic_spec), ranks, strict=True)
    )
    return Learners(cluster, policy, config.learner.start_timeout_s, scorers, critic)


def _scorers(cluster: Cluster, config: Config, model: Path, restarts: Restarts) -> ScorerProcess | None:
    columns = separate_columns(config)
    if not columns:
        return None
    return ScorerProcess(cluster, scorers_spec(config, model), columns, restarts, config.learner.start_timeout_s)


async def _started(team: Actors, timer: PhaseTimer, *, learns: bool) -> None:
    """Start all actors side by side; the first failure cancels the others.

    What shares the GPUs of engines starts when they sleep: vLLM counts what others hold as its own.
    """
    have_started = asyncio.Event()

    async def engines() -> None:
        await timer.timed("engines", team.engines.start())
        have_started.set()

    async def beside(part: str, start: Callable[[], Awaitable[None]], *, shares_gpus: bool) -> None:
        if shares_gpus and team.engines.shares_gpus:
            await have_started.wait()
        await timer.timed(part, start())

    parts = [engines(), timer.timed("workers", team.workers.start(team.fleets))]
    parts += [timer.timed("role engines", each.start()) for each in team.role_engines]
    if team.reward_models.is_serving:
        shares_gpus = team.reward_models.shares_gpus
        parts.append(beside("reward models", team.reward_models.start, shares_gpus=shares_gpus))
    if learns:
        parts.append(beside("learner", team.learners.start, shares_gpus=True))
    await together(parts)


async def _ended(team: Actors, registry: ProcessRegistry) -> None:
    with suppress(RunError):  # a full disk keeps nothing from ending
        await asyncio.to_thread(registry.register_descendants)
    engines = [team.engines, *(each.engines for each in team.role_engines)]
    await asyncio.gather(team.workers.close(), *(each.close() for each in engines), team.reward_models.close())


async def _closed(cluster: Cluster, folder: Path) -> None:
    cluster.kill()
    await cluster.on_other_hosts(clean_host, folder, deadline_s=REMOTE_S)
    await asyncio.to_thread(cluster.close)
    await clean_up(folder)


async def clean_up(folder: Path) -> None:
    """Clean this host up, as `clean_host` does."""
    await asyncio.to_thread(clean_host, folder)
