"""Settings at which a run fits: the fastest of those that were left to the machine, or the nearest of all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

from agentrl.algorithms.configured import configured_algorithm
from agentrl.config.keys import RESUMABLE, keys, unset_of, value_of
from agentrl.config.machine import Machine, together
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import Config
from agentrl.errors import ConfigError
from agentrl.planning.hardware import Hardware
from agentrl.planning.placement import for_algorithm
from agentrl.planning.plan import Plan
from agentrl.planning.ranks import width_of

MOST_CHOSEN, MOST_CHANGES = 3, 4
"""Keys that are compared by their speed, and keys or flags that are tried, at once."""
LONG = 16384
"""Tokens of a context that is divided among GPUs."""
LEAST_TOKENS = 512
"""A smaller micro-batch leaves a GPU idle."""
SHARES = (0.35, 0.25, 0.6, 0.75, 0.9, 0.95)
"""Of a GPU for an engine: less for the learner beside it, more for a model that needs it."""
MORE_CACHE = (2, 4, 8, 16, 32, 64)
"""GiB of the KV cache of a CPU engine for longer sequences."""
MORE_NODES = (2, 4, 8)

Levels = tuple[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Change:
    """A key with another value."""

    key: str
    value: Any

    def __str__(self) -> str:
        value = str(self.value).lower() if isinstance(self.value, bool) else self.value
        return f"--{self.key} {value}"


TRANSFER = Change("weights.transfer", "auto")
ADAPTERS = (Change("lora.rank", 16),)
QUANTIZED = (*ADAPTERS, Change("lora.load_in_4bit", True))
PARKED = (
    Change("learner.zero_stage", 3),
    Change("learner.offload", True),
    Change("learner.deepspeed.offload_param.device", "cpu"),
)


@dataclass(frozen=True)
class Remedy:
    """Changes after which a run fits, and the plan with them. `nodes` is 0 unless it takes more machines."""

    changes: tuple[Change, ...]
    plan: Plan
    nodes: int = 0

    @property
    def flags(self) -> str:
        """The flags to type."""
        return " ".join(map(str, self.changes))

    @property
    def advice(self) -> str:
        """The sentence that proposes it."""
        return self._proposal if self.plan.fits else f"{self._proposal} (tight: it may run out of memory)"

    @property
    def _proposal(self) -> str:
        if self.nodes:
            return f"on {self.nodes} machines it fits with {self.flags or 'the same settings'}"
        if self.changes[: len(PARKED)] == PARKED:
            return f"parameters and optimizer in CPU memory fit, and are sent in every pass: {self.flags}"
        if self.changes[: len(ADAPTERS)] == ADAPTERS:
            return f"adapters in place of all weights fit: {self.flags}"
        return f"nearest setting{' that fits' * self.plan.fits}: {self.flags}"


def fastest(requested: Config, machine: Machine, plan: Plan) -> Remedy | None:
    """Return the fastest setting of keys without a value at which `requested`, whose plan is `plan`, fits.

    More keys are tried only if it takes them.
    """
    decided = for_algorithm(requested, learns=plan.models.learns)
    levels = [level for level in _levels(plan) if not is_set(decided, level[0])]
    for numbers in (range(1, MOST_CHOSEN + 1), range(MOST_CHOSEN + 1, MOST_CHANGES + 1)):
        found = [remedy for number in numbers for remedy in _possible(decided, machine, plan, levels, number)]
        if fitting := [remedy for remedy in found if remedy.plan.fits]:
            return min(fitting, key=lambda remedy: remedy.plan.step_s)
    return None


def is_set(config: Config, key: str) -> bool:
    """Return whether a key has a value, in place of one that is chosen for the machine."""
    info = keys()[key]
    return unset_of(info) is None or value_of(config, key) != info.default


def remedies(requested: Config, machine: Machine, plan: Plan) -> tuple[Remedy, ...]:
    """Return the fewest changes of any key with which the run fits, and of those the fastest.

    If there are none, return those with which it is tight, and what else fits: adapters in place of all weights,
    parameters in CPU memory, and more machines. Of a run that is resumed, only what a resume may change is changed.
    """
    nearest = _nearest(requested, machine, plan)
    if nearest and nearest.plan.fits:
        return (nearest,)
    others = (_on_more_machines,) if plan.resumes else (_with_adapters, _in_cpu_memory, _on_more_machines)
    return tuple(filter(None, (nearest, *(way(requested, machine, plan) for way in others))))


def _with_adapters(requested: Config, machine: Machine, plan: Plan) -> Remedy | None:
    """Return the nearest setting with adapters in place of all weights, in 4 bits if it takes that."""
    if not plan.models.learns or requested.lora.rank:
        return None
    adapted = replace(plan, models=plan.models.with_adapters(plan.config))
    # With adapters the policy's own weights are the reference, and nothing may be left to wait in CPU memory.
    undone = (Change("scorers.offload", False),) * requested.scorers.offload
    ways = dict.fromkeys((*first, *more) for first in (ADAPTERS, QUANTIZED) for more in ((), undone))
    return _first(_nearest(_changed(requested, first), machine, adapted, first) for first in ways)


def _nearest(requested: Config, machine: Machine, plan: Plan, first: tuple[Change, ...] = ()) -> Remedy | None:
    if _exceeds_machine(plan):
        return None
    decided = for_algorithm(requested, learns=plan.models.learns)
    levels: dict[str, list[Any]] = {}
    for key, values in (*_levels(plan), *_more_ranks(plan, decided)):
        levels.setdefault(key, []).extend(values)
    freed = _changed(decided, (TRANSFER,))  # the way of the weights that is set may be that of one placement alone
    best = _first(_best(freed, machine, plan, list(levels.items()), n) for n in range(MOST_CHANGES + 1))
    if best is None:
        return None
    is_other = decided.weights.transfer not in (TRANSFER.value, best.plan.config.weights.transfer)
    return replace(best, changes=(*first, *best.changes, *(TRANSFER,) * is_other))


def _best(requested: Config, machine: Machine, plan: Plan, levels: Sequence[Levels], number: int) -> Remedy | None:
    """Return the fastest setting that differs in `number` keys and fits, else the fastest that is tight."""
    found = list(_possible(requested, machine, plan, levels, number))
    return min(found, key=lambda remedy: (not remedy.plan.fits, remedy.plan.step_s), default=None)


def _first(found: Iterable[Remedy | None]) -> Remedy | None:
    """Return the first setting that fits, else the first that is tight."""
    tight = None
    for one in found:
        if one and one.plan.fits:
            return one
        tight = tight or one
    return tight


def _in_cpu_memory(requested: Config, machine: Machine, plan: Plan) -> Remedy | None:
    """Return the nearest setting with parameters and optimizer in CPU memory."""
    if not (machine.gpus and plan.models.learns) or _exceeds_machine(plan):
        return None
    parked = _changed(requested, PARKED)
    tried = _tried(parked, machine, plan)
    return _nearest(parked, machine, tried, PARKED) if tried else None


def _exceeds_machine(plan: Plan) -> bool:
    """Return whether the weights of an engine exceed a GPU on however many GPUs of one machine it has."""
    config, engine = plan.config, plan.config.engine
    split = max(engine.tensor_parallel, plan.hardware.gpus) * engine.pipeline_parallel
    weights = width_of(config) * plan.models.policy.parameters // split
    return config.device == "cuda" and weights > plan.hardware.gpu_bytes


def _on_more_machines(requested: Config, machine: Machine, plan: Plan) -> Remedy | None:
    """Return the nearest setting on 2, 4 or 8 times as many machines."""
    if not machine.gpus:
        return None
    return _first(_on_machines(requested, machine, plan, times) for times in MORE_NODES)


def _on_machines(requested: Config, machine: Machine, plan: Plan, times: int) -> Remedy | None:
    larger = together((machine.hosts or (machine,)) * times)
    hardware = Hardware.of(larger)
    found = _nearest(requested, larger, replace(plan, hardware=hardware))
    return replace(found, nodes=len(hardware.hosts)) if found else None


def _possible(
    requested: Config, machine: Machine, plan: Plan, levels: Sequence[Levels], number: int
) -> Iterator[Remedy]:
    """Yield the settings that differ in `number` keys, fit or are tight, and can train."""
    for chosen in combinations(levels, number):
        for values in product(*(values for _, values in chosen)):
            changes = tuple(Change(key, value) for (key, _), value in zip(chosen, values, strict=True))
            tried = _tried(_changed(requested, changes), machine, plan)
            if tried and tried.may_fit and _can_train(tried):
                yield Remedy(changes, tried)


def _changed(config: Config, changes: Sequence[Change]) -> Config:
    for change in changes:
        config = _with(config, change.key.split("."), change.value)
    return config


def _with(section: Any, names: Sequence[str], value: Any) -> Any:
    """Return a section, or a table of options, with another value of a key."""
    first, *rest = names
    if isinstance(section, dict):
        return {**section, first: _with(section.get(first, {}), rest, value) if rest else value}
    changed = _with(getattr(section, first), rest, value) if rest else value
    return section.model_copy(update={first: changed})


def _tried(requested: Config, machine: Machine, plan: Plan) -> Plan | None:
    """Return the plan of another configuration, None if it cannot run."""
    try:
        return replace(plan, config=resolve_run(requested, machine, learns=plan.models.learns))
    except ConfigError:
        return None


def _can_train(plan: Plan) -> bool:
    """Return whether the algorithm accepts the settings of a plan; an evaluation has none."""
    try:
        return not plan.models.learns or bool(configured_algorithm(plan.config))
    except ConfigError:
        return False


# --------------------------------------------------------------------------------------------------------------
# What may change: the settings in the order in which they are preferred, each with its values.


def _levels(plan: Plan) -> list[Levels]:
    """Return the settings that may change a plan, with values other than the present ones."""
    of_engine = _engine_levels(plan) if plan.config.device == "cuda" else _cpu_levels(plan)
    levels = [*(_learner_levels(plan) if plan.models.learns else ()), *of_engine]
    return [(key, values) for key, values in levels if values and (not plan.resumes or RESUMABLE.fullmatch(key))]


def _learner_levels(plan: Plan) -> Iterator[Levels]:
    config, models = plan.config, plan.models
    learner, is_on_gpu = config.learner, config.device == "cuda"
    yield "learner.zero_stage", [stage for stage in (1, 2, 3) if stage > learner.stage]
    yield "model.gradient_checkpointing", [True] * (not config.model.gradient_checkpointing)
    least = max(LEAST_TOKENS, config.model.max_context)
    halves = [learner.micro_batch_tokens >> n for n in range(1, 6)]
    yield "learner.micro_batch_tokens", [tokens for tokens in halves if tokens >= least]
    yield "learner.offload", [True] * (is_on_gpu and not learner.offload)
    splits = [split for split in (2, 4, 8, 16) if split > learner.sequence_parallel and learner.ranks % split == 0]
    yield "learner.sequence_parallel", splits if is_on_gpu and config.model.max_context >= LONG else []
    yield "scorers.placement", ["colocate"] * (is_on_gpu and config.scorers.placement == "separate")
    yield "reward.placement", ["separate"] * (is_on_gpu and config.reward.is_shared)
    waiting = ((models.frozen, config.scorers), (models.critic, config.critic))
    has_waiting = any(model and section.placement != "separate" for model, section in waiting)
    yield "scorers.offload", [True] * (is_on_gpu and has_waiting and not config.scorers.offload)


def _more_ranks(plan: Plan, requested: Config) -> list[Levels]:
    """Return more ranks than the user asked for, and more engines on the GPUs that these share.

    A number that is left to the machine is as large as it can be.
    """
    config, gpus = plan.config, sum(host.gpus for host in plan.hardware.hosts)
    if config.device != "cuda" or not plan.models.learns:
        return []
    numbers = {"learner.ranks": config.learner.ranks, "critic.ranks": config.critic.separate_ranks(config.learner)}
    if config.engine.placement == "colocate":
        numbers["engine.count"] = config.engine.count
    asked = {key: number for key, number in numbers.items() if number and is_set(requested, key)}
    return [(key, more) for key, n in asked.items() if (more := [n << m for m in range(1, 6) if n << m <= gpus])]


def _engine_levels(plan: Plan) -> Iterator[Levels]:
    engine, most = plan.config.engine, max(1, plan.hardware.gpus)
    yield "engine.gpu_memory_utilization", [share for share in SHARES if share != engine.gpu_memory_utilization]
    others = [name for name in ("separate", "colocate") if name != engine.placement]
    yield "engine.placement", others if plan.models.learns else []
    splits = [split for split in (2, 4, 8, 16) if engine.tensor_parallel < split <= most]
    yield "engine.tensor_parallel", [split for split in splits if plan.models.policy.heads % split == 0]
    fewer = {engine.count // 2, 1} - {0, engine.count}
    yield "engine.count", sorted(fewer, reverse=True) if plan.models.learns else []


def _cpu_levels(plan: Plan) -> Iterator[Levels]:
    engine, learner = plan.config.engine, plan.config.learner
    less = [float(gib) for gib in (8, 4, 2, 1) if gib < engine.kv_cache_gib]
    yield "engine.kv_cache_gib", less + [float(gib) for gib in MORE_CACHE if gib > engine.kv_cache_gib]
    yield "engine.count", [1] * (engine.count > 1)
    yield "learner.ranks", [1] * (learner.ranks > 1 and plan.models.learns)
