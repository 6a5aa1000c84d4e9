"""What every device of a run needs in every phase: roles that share a device are summed where they overlap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from agentrl.config.machine import GIB
from agentrl.config.schema import Config, LoraSection
from agentrl.config.validate import ENGINE_GIB, RANK_GIB, WORKER_GIB
from agentrl.planning.engine import CONTEXT, ServedModel, asleep, awake
from agentrl.planning.hardware import Hardware
from agentrl.planning.models import RunModels
from agentrl.planning.need import Item, Need, Phase, total, used
from agentrl.planning.ranks import Rank, on_cpu, separate_scorers, width_of
from agentrl.planning.shape import ModelShape


def needs_of(config: Config, models: RunModels, hardware: Hardware) -> tuple[Need, ...]:
    """Return the needs of a resolved configuration."""
    on = _on_gpus if config.device == "cuda" else _on_cpus
    return tuple(on(config, models, hardware))


def engine_of(config: Config, models: RunModels) -> ServedModel:
    """Return an engine of the policy."""
    is_on_gpu, context = config.device == "cuda", config.model.max_context
    return ServedModel(models.policy, config.engine, config.lora, width_of(config), context, is_on_gpu)


def _role_engine(config: Config, shape: ModelShape, context: int) -> ServedModel:
    """Return the engine of a model that plays a role or judges (cluster/role_engines.py)."""
    section = config.engine.model_copy(update={"count": 1, "tensor_parallel": 1, "pipeline_parallel": 1})
    return ServedModel(shape, section, LoraSection(), width_of(config), context, config.device == "cuda")


# --------------------------------------------------------------------------------------------------------------
# On GPUs.


def _on_gpus(config: Config, models: RunModels, hardware: Hardware) -> Iterator[Need]:
    capacity = hardware.gpu_bytes
    engine, rank = engine_of(config, models), Rank(config, models)
    sampling = awake(engine, capacity)
    if models.learns and config.engine.placement == "colocate":
        yield from _shared(rank, engine, capacity)
    else:
        if models.learns:
            yield from _learner(rank, capacity)
        count = config.engine.count * engine.split
        yield Need("engine", count, Phase.SAMPLING, sampling, capacity)
    yield from _beside(rank, hardware)
    if models.learns:
        yield from _hosts(rank, hardware)


def _learner(rank: Rank, capacity: int) -> Iterator[Need]:
    """Yield the phases of a GPU that only a rank uses."""
    context, count = Item("CUDA context", CONTEXT), rank.config.learner.ranks
    yield Need("learner", count, Phase.START, (*rank.start, context), capacity)
    if rank.scoring:
        yield Need("learner", count, Phase.SCORING, (*rank.state, *rank.scoring, context), capacity)
    yield Need("learner", count, Phase.UPDATE, (*rank.state, *rank.update, context), capacity)
    yield Need("learner", count, Phase.PUBLICATION, (*rank.state, *rank.publication, context), capacity)


def _shared(rank: Rank, engine: ServedModel, capacity: int) -> Iterator[Need]:
    """Yield the phases of a GPU on which a rank and an engine take turns: the engine sleeps while the rank works.

    They start side by side, and the engine wakes before a publication. The optimizer's state then waits in CPU memory,
    and the rank's allocator has returned what the update freed (learner/offload.py).
    """
    name, sampling = "learner + engine", awake(engine, capacity)
    for need in _learner(rank, capacity):
        if need.phase is not Phase.PUBLICATION:
            beside = sampling if need.phase is Phase.START else asleep(engine)
            yield replace(need, device=name, items=(*need.items, *_named("engine", beside)))
    held = Item("learner's state", total(rank.state) + CONTEXT)
    count = rank.config.learner.ranks
    yield Need(name, count, Phase.SAMPLING, (*sampling, held), capacity)
    yield Need(name, count, Phase.PUBLICATION, (*sampling, held, *_named("learner", rank.publication)), capacity)


def _named(prefix: str, items: Iterable[Item]) -> tuple[Item, ...]:
    return tuple(replace(item, name=f"{prefix}'s {item.name}") for item in items)


def _beside(rank: Rank, hardware: Hardware) -> Iterator[Need]:
    """Yield the GPUs of models outside of engines and ranks."""
    config, models, capacity = rank.config, rank.models, hardware.gpu_bytes
    if models.learns and config.scorers.placement == "separate":
        yield Need("scorers", 1, Phase.SCORING, (*separate_scorers(rank), Item("CUDA context", CONTEXT)), capacity)
    for shape, context in models.roles:
        yield Need("role engine", 1, Phase.SAMPLING, awake(_role_engine(config, shape, context), capacity), capacity)
    if models.rewards and config.reward.gpus:
        each = int(capacity * min(1.0, config.reward.gpus))
        largest = max(shape.parameters for shape in models.rewards) * width_of(config)
        items = (Item("weights", largest), Item("CUDA context", CONTEXT))
        yield Need("reward model", len(models.rewards), Phase.SAMPLING, items, each)


def _hosts(rank: Rank, hardware: Hardware) -> Iterator[Need]:
    """Yield the CPU memory of each machine: ranks load whole models, and keep there what is offloaded."""
    config = rank.config
    ranks, engines = (-(-count // hardware.nodes) for count in (config.learner.ranks, config.engine.count))
    processes = ranks * RANK_GIB + engines * ENGINE_GIB + config.rollout.workers * WORKER_GIB
    base = Item("processes", int(processes * GIB))
    for phase, items in ((Phase.START, (*rank.host, *rank.loading)), (Phase.UPDATE, rank.host)):
        if items:
            own = tuple(replace(item, nbytes=ranks * item.nbytes) for item in items)
            yield Need("CPU memory", hardware.nodes, phase, (*own, base), hardware.host_bytes)


# --------------------------------------------------------------------------------------------------------------
# On CPUs.


def _on_cpus(config: Config, models: RunModels, hardware: Hardware) -> Iterator[Need]:
    """Yield the memory of all machines: processes keep what they free, so that their peaks add up."""
    engine = engine_of(config, models)
    engines = [engine] * config.engine.count + [_role_engine(config, *role) for role in models.roles]
    items = [Item("engines", sum(total(awake(each, 0)) for each in engines))]
    processes = len(engines) * ENGINE_GIB + config.rollout.workers * WORKER_GIB + len(models.rewards) * RANK_GIB
    items.append(Item("reward models", sum(width_of(config) * shape.parameters for shape in models.rewards)))
    if models.learns:
        rank = Rank(config, models)
        ranks, separate = config.learner.ranks, config.scorers.placement == "separate"
        items.append(Item("learner", ranks * total(on_cpu(rank))))
        items.append(Item("scorers", total(separate_scorers(rank)) if separate else 0))
        items.append(Item("publication", total(rank.publication)))
        processes += ranks * RANK_GIB + separate * RANK_GIB
    items.append(Item("processes", int(processes * GIB)))
    yield Need("CPU memory", 1, Phase.UPDATE, used(*items), hardware.nodes * hardware.host_bytes)
