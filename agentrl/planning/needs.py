"""What every device of a run needs in every phase: roles that share a device are summed where they overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from agentrl.config.machine import GIB
from agentrl.config.schema import Config, LoraSection
from agentrl.config.validate import ENGINE_GIB, RANK_GIB, WORKER_GIB, counted
from agentrl.planning.engine import CONTEXT, ServedModel, asleep, awake, kept_asleep, starting
from agentrl.planning.hardware import Hardware
from agentrl.planning.models import RunModels
from agentrl.planning.need import Item, Need, Phase, total, used
from agentrl.planning.ranks import CriticRank, Rank, on_cpu, reward_model, separate_scorers, width_of
from agentrl.planning.shape import ModelShape


def needs_of(config: Config, models: RunModels, hardware: Hardware) -> Iterator[Need]:
    """Yield the needs of a resolved configuration."""
    on = _on_gpus if config.device == "cuda" else _on_cpus
    return on(config, models, hardware)


def engine_of(config: Config, models: RunModels) -> ServedModel:
    """Return an engine of the policy."""
    is_on_gpu, context = config.device == "cuda", config.model.max_context
    return ServedModel(models.policy, config.engine, config.lora, width_of(config), context, is_on_gpu)


def _role_engine(config: Config, shape: ModelShape, context: int) -> ServedModel:
    """Return the engine of a model that plays a role or judges (cluster/role_engines.py)."""
    return ServedModel(shape, config.engine.alone, LoraSection(), width_of(config), context, config.device == "cuda")


# --------------------------------------------------------------------------------------------------------------
# On GPUs.


def _on_gpus(config: Config, models: RunModels, hardware: Hardware) -> Iterator[Need]:
    capacity = hardware.gpu_bytes
    engine, rank = engine_of(config, models), Rank(config, models)
    sampling, count = awake(engine, capacity), config.engine.count * engine.split
    if models.learns and _is_shared(config):
        yield from _with_reward_models(rank, _shared(rank, engine, capacity))
    else:
        if models.learns:
            yield from _with_reward_models(rank, _learner(rank, capacity))
        yield Need("engine", count, Phase.SAMPLING, sampling, capacity)
    yield starting(engine, "engine", count, capacity)
    yield from _beside(rank, hardware)
    if models.learns:
        yield from _hosts(rank, hardware)


def _learner(rank: Rank, capacity: int) -> Iterator[Need]:
    """Yield the phases of a GPU that only a rank uses."""
    yield from _trained("learner", rank.config.learner.ranks, rank, capacity)
    held = *rank.state, *rank.publication, Item("CUDA context", CONTEXT)
    yield Need("learner", rank.config.learner.ranks, Phase.PUBLICATION, held, capacity)


def _trained(device: str, count: int, rank: Rank | CriticRank, capacity: int) -> Iterator[Need]:
    """Yield the phases of a step on the GPUs of ranks."""
    context = Item("CUDA context", CONTEXT)
    yield Need(device, count, Phase.START, (*rank.start, context), capacity)
    if rank.scoring:
        yield Need(device, count, Phase.SCORING, (*rank.state, *rank.scoring, context), capacity)
    yield Need(device, count, Phase.UPDATE, (*rank.state, *rank.update, context), capacity)


def _shared(rank: Rank, engine: ServedModel, capacity: int) -> Iterator[Need]:
    """Yield the phases of a GPU on which a rank and an engine take turns: the engine sleeps while the rank works.

    The rank starts when the engine sleeps, and the engine wakes before a publication. The optimizer's state then waits
    in CPU memory, and the rank's allocator has returned what the update freed (learner/rank.py).
    """
    name, sampling = "learner + engine", awake(engine, capacity)
    for need in _learner(rank, capacity):
        if need.phase is not Phase.PUBLICATION:
            yield replace(need, device=name, items=(*need.items, *_named("engine", asleep(engine))))
    held = Item("learner's state", total(rank.state) + CONTEXT)
    count = rank.config.learner.ranks
    yield Need(name, count, Phase.SAMPLING, (*sampling, held), capacity)
    yield Need(name, count, Phase.PUBLICATION, (*sampling, held, *_named("learner", rank.publication)), capacity)


def _with_reward_models(rank: Rank, needs: Iterable[Need]) -> Iterator[Need]:
    """Yield the needs of the GPUs of ranks with the reward models that share them, which stay there in every phase."""
    items = rank.reward_models
    device = " + reward models" * bool(items)
    for need in needs:
        yield replace(need, device=need.device + device, items=(*need.items, *items))


def _named(prefix: str, items: Iterable[Item]) -> tuple[Item, ...]:
    return tuple(replace(item, name=f"{prefix}'s {item.name}") for item in items)


def _beside(rank: Rank, hardware: Hardware) -> Iterator[Need]:
    """Yield the GPUs of models outside of engines and ranks."""
    config, models, capacity = rank.config, rank.models, hardware.gpu_bytes
    if rank.apart:
        yield from _trained("critic", config.critic.separate_ranks(config.learner), rank.apart, capacity)
    if models.learns and config.scorers.placement == "separate":
        yield Need("scorers", 1, Phase.SCORING, (*separate_scorers(rank), Item("CUDA context", CONTEXT)), capacity)
    for shape, context in models.roles:
        role = _role_engine(config, shape, context)
        yield Need("role engine", 1, Phase.SAMPLING, awake(role, capacity), capacity)
        yield starting(role, "role engine", 1, capacity)
    if models.rewards and config.reward.groups:
        count, each = len(models.rewards), int(capacity * min(1.0, config.reward.each))
        largest = max((reward_model(config, shape) for shape in models.rewards), key=total)
        limit = f"reward.gpus {config.reward.each:g} leaves it"
        yield Need("reward model", count, Phase.SAMPLING, (*largest, Item("CUDA context", CONTEXT)), each, limit)
        if config.reward.each > 1:  # a model computes on the first of its GPUs
            yield Need("reward model's idle GPU", count * int(config.reward.each - 1), Phase.SAMPLING, (), capacity)


def _hosts(rank: Rank, hardware: Hardware) -> Iterator[Need]:
    """Yield the CPU memory of machines by their GPUs: ranks load whole models, and keep there what is offloaded."""
    for gpus in sorted({host.gpus for host in hardware.hosts}, reverse=True):
        memory = [host.nbytes for host in hardware.hosts if host.gpus == gpus]
        is_alike = len(memory) == len(hardware.hosts)
        device = "CPU memory" if is_alike else f"CPU memory beside {counted(gpus, 'GPU')}"
        for phase in (Phase.START, Phase.UPDATE):
            fullest = max((_host(rank, *each, phase) for each in _fullest(rank.config, gpus)), key=total)
            if phase is Phase.START or len(fullest) > 1:
                yield Need(device, len(memory), phase, fullest, min(memory))


def _host(rank: Rank, ranks: int, critics: int, engines: int, phase: Phase) -> tuple[Item, ...]:
    """Return what is in the CPU memory of a machine with so many ranks, ranks of a critic and engines."""
    config, critic = rank.config, rank.apart
    processes = (ranks + critics) * RANK_GIB + engines * ENGINE_GIB + config.rollout.workers * WORKER_GIB
    processes += len(rank.models.roles) * ENGINE_GIB
    processes += (len(rank.models.rewards) + (config.scorers.placement == "separate")) * RANK_GIB
    base = Item("processes", int(processes * GIB))
    asleep = _times(engines, kept_asleep(engine_of(config, rank.models)) if _is_shared(config) else ())
    of_rank, of_critic = rank.host, critic.host if critic else ()
    if phase is Phase.START:
        of_rank += rank.loading
        of_critic += critic.loading if critic else ()
    items = used(*_times(ranks, of_rank), *asleep, *_named("critic", _times(critics, of_critic)))
    return (*items, base)


def _fullest(config: Config, gpus: int) -> Iterator[tuple[int, int, int]]:
    """Yield the most ranks, ranks of a critic and engines that may be on a machine with so many GPUs.

    Ray packs processes, engines first: of several machines one may have no engine, and a rank on every GPU, or one of
    the critic.
    """
    critics, is_shared = config.critic.separate_ranks(config.learner), _is_shared(config)
    for of_critic in sorted({0, min(critics, gpus)}):
        free = gpus - of_critic
        ranks = min(config.learner.ranks, free // config.engine.gpus * config.engine.gpus if is_shared else free)
        beside = min(critics, gpus - ranks)
        left = ranks if is_shared else gpus - ranks - beside
        yield ranks, beside, min(config.engine.count, left // config.engine.gpus)


def _is_shared(config: Config) -> bool:
    return config.engine.placement == "colocate"


def _times(count: int, items: Iterable[Item]) -> tuple[Item, ...]:
    return tuple(replace(item, nbytes=count * item.nbytes) for item in items)


# --------------------------------------------------------------------------------------------------------------
# On CPUs.


@dataclass(frozen=True, slots=True)
class _Processes:
    """Processes of one kind on CPUs; `role` names what all that do the same take together."""

    device: str
    role: str
    count: int
    phase: Phase
    items: tuple[Item, ...]
    gib: float

    @property
    def each(self) -> tuple[Item, ...]:
        """What one of them takes."""
        return (*self.items, Item("process", int(self.gib * GIB)))


def _on_cpus(config: Config, models: RunModels, hardware: Hardware) -> Iterator[Need]:
    """Yield the memory of all machines: processes keep what they free, so that their peaks add up.

    Of several machines the one with the most memory must have room for the largest process.
    """
    kinds = list(_processes(config, models))
    taken: Counter[str] = Counter()
    for kind in kinds:
        taken[kind.role] += kind.count * total(kind.items)
    if models.learns:
        taken["publication"] = total(Rank(config, models).publication)
    taken["processes"] = int(GIB * (sum(kind.count * kind.gib for kind in kinds) + config.rollout.workers * WORKER_GIB))
    yield Need("CPU memory", 1, Phase.UPDATE, used(*(Item(*each) for each in taken.items())), hardware.host_bytes)
    if len(hardware.hosts) > 1:
        largest = max(kinds, key=lambda kind: total(kind.each))
        capacity, limit = hardware.largest_host_bytes, "the machine with the most memory has"
        yield Need(largest.device, largest.count, largest.phase, largest.each, capacity, limit)
    yield starting(engine_of(config, models), "engine", config.engine.count, 0)
    yield from (starting(_role_engine(config, *role), "role engine", 1, 0) for role in models.roles)


def _processes(config: Config, models: RunModels) -> Iterator[_Processes]:
    """Yield the processes of a run but for its workers."""
    served = awake(engine_of(config, models), 0)
    yield _Processes("engine", "engines", config.engine.count, Phase.SAMPLING, served, ENGINE_GIB)
    for role in models.roles:
        served = awake(_role_engine(config, *role), 0)
        yield _Processes("role engine", "engines", 1, Phase.SAMPLING, served, ENGINE_GIB)
    for shape in models.rewards:
        loaded = reward_model(config, shape)
        yield _Processes("reward model", "reward models", 1, Phase.SAMPLING, loaded, RANK_GIB)
    if models.learns:
        rank, critics = Rank(config, models), config.critic.separate_ranks(config.learner)
        yield _Processes("learner rank", "learner", config.learner.ranks, Phase.UPDATE, on_cpu(rank), RANK_GIB)
        if rank.apart:
            yield _Processes("critic rank", "critic", critics, Phase.UPDATE, on_cpu(rank.apart), RANK_GIB)
        if config.scorers.placement == "separate":
            yield _Processes("scorers", "scorers", 1, Phase.SCORING, separate_scorers(rank), RANK_GIB)
