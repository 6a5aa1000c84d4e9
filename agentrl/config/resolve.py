"""What a run will do on this machine: every value that depends on it is chosen, and the choice explained."""

from __future__ import annotations

from typing import Any, TypeVar

from agentrl.config.arrangement import arranged
from agentrl.config.embedded import EMBEDDED
from agentrl.config.machine import Machine
from agentrl.config.models import HUB_DEFAULT
from agentrl.config.schema import MICRO_BATCH_TOKENS, SHARES, Config, EngineSection, LoraSection, Section
from agentrl.config.validate import counted, transfer_of, validate

S = TypeVar("S", bound=Section)

# Peak learning rate and tokens per turn: a model of 135M parameters bears a higher rate and needs fewer tokens.
SMALL, USUAL = (4e-5, 24), (1e-6, 512)
LORA_RATE = 10
"""Adapters learn best at about ten times the rate of full training (Schulman et al., LoRA Without Regret, 2025)."""


def resolve_run(config: Config, machine: Machine, *, learns: bool = True) -> Config:
    """Return the configuration with every value chosen for this machine. Raises ConfigError for what cannot run on it.

    A run that does not learn, an evaluation, has no ranks: its engines get all GPUs that nothing else takes.

    A resolved configuration comes back equal.
    """
    model, rollout, weights = config.model, config.rollout, config.weights
    has_gpu = bool(machine.gpus) and machine.has("vllm")
    device = config.device if config.device != "auto" else "cuda" if has_gpu else "cpu"
    reward = config.reward if learns else _with(config.reward, placement="separate")
    gpus = len(machine.gpus) if device == "cuda" else 0
    config = arranged(config.model_copy(update={"reward": reward}), machine if gpus else None, learns=learns)
    learner, engine = config.learner, _engine(config, machine, device)
    lora = _lora(config, device)
    transfer = transfer_of(device, engine, lora)
    name = model.name or (HUB_DEFAULT if device == "cuda" else EMBEDDED)
    lr, max_tokens = SMALL if name == EMBEDDED else USUAL
    dtype = "bfloat16" if device == "cuda" or machine.has_bfloat16 else "float32"
    update = {
        "device": device,
        "model": _with(
            model,
            name=name,
            dtype=dtype if model.dtype == "auto" else model.dtype,
            gradient_checkpointing=bool(model.gradient_checkpointing),
        ),
        "engine": engine,
        "learner": _with(
            learner,
            zero_stage=learner.stage,
            epochs=learner.passes,
            threads=learner.threads or min(machine.cores_per_host, threads_of(config, machine.cores)[1]),
            lr=learner.lr or lr * (LORA_RATE if lora.rank else 1),
            micro_batch_tokens=learner.micro_batch_tokens or MICRO_BATCH_TOKENS[device],
        ),
        "reward": reward,
        "rollout": _with(rollout, max_tokens=rollout.max_tokens or max_tokens),
        "lora": lora,
        "weights": _with(weights, transfer=transfer if weights.transfer == "auto" else weights.transfer),
    }
    resolved = config.model_copy(update=update)
    validate(resolved, machine)
    return resolved


def _lora(config: Config, device: str) -> LoraSection:
    lora = config.lora
    default = "adapter" if lora.rank and device == "cuda" and not lora.load_in_4bit else "merged"
    publish = default if lora.publish == "auto" else lora.publish
    return _with(lora, alpha=lora.alpha or 2.0 * lora.rank, publish=publish)


def _engine(config: Config, machine: Machine, device: str) -> EngineSection:
    engine = _with(
        config.engine,
        threads=config.engine.threads or min(machine.cores_per_host, threads_of(config, machine.cores)[0]),
        enforce_eager=device == "cpu" if config.engine.enforce_eager is None else config.engine.enforce_eager,
    )
    if device == "cpu":
        share_gib = float(min(8, max(1, int(machine.memory_gib / 10 / engine.count))))
        return _with(engine, kv_cache_gib=engine.kv_cache_gib or share_gib)
    share = SHARES["colocate" if engine.placement == "colocate" else "separate"]
    return _with(engine, gpu_memory_utilization=engine.gpu_memory_utilization or share)


def threads_of(config: Config, cores: int) -> tuple[int, int]:
    """Return the threads of an engine and of a rank: of all cores if they take turns, of half of them otherwise."""
    share = cores if config.rollout.max_staleness == 0 else cores // 2
    ranks = config.learner.ranks + config.critic.separate_ranks(config.learner)
    return max(1, share // config.engine.count), max(1, share // max(1, ranks))


def _with(section: S, **values: Any) -> S:
    return section.model_copy(update=values)


def explain(config: Config, machine: Machine) -> str:
    """Return one paragraph about a resolved configuration, for readers who know none of the libraries."""
    engine, learner, rollout = config.engine, config.learner, config.rollout
    gpus = f"{len(machine.gpus)} x {machine.gpus[0].name}" if machine.gpus else "no GPU"
    where = f"The {len(machine.hosts)} machines of the cluster have" if machine.hosts else "This machine has"
    here = f"{where} {counted(machine.cores, 'core')}, {machine.memory_gib:.0f} GiB of memory and {gpus}."
    if machine.gpus and config.device == "cpu":
        here += " The GPU stays idle: device is cpu, or the GPU build of vllm is not installed."
    sampled = f"{counted(engine.count, 'vLLM process', 'vLLM processes')} will sample from it"
    trained = f"{counted(learner.ranks, 'DeepSpeed process', 'DeepSpeed processes')} will train it"
    trained += f" at ZeRO stage {learner.stage}" if learner.stage else ""
    is_emulated = config.device == "cpu" and not machine.has_bfloat16
    dtype = config.model.dtype + " (this CPU only emulates bfloat16)" * is_emulated
    model = f"The model is {config.model.name}: {sampled} and {trained} in {dtype}, {_sharing(config)}."
    load = (
        f"Each of {counted(config.steps, 'step')} takes {counted(rollout.prompts, 'task')} x "
        f"{counted(rollout.group_size, 'episode')}, at most {rollout.max_tokens} new tokens per turn, and updates the "
        f"model with {config.algorithm.name} at a learning rate of {learner.lr:g}."
    )
    bound = f"no trained token is older than {counted(rollout.max_staleness, 'update')}"
    wait = f"Sampling continues during updates; {bound}." if rollout.max_staleness else "Sampling waits for updates."
    scorers = ["Reference and teacher have a process of their own."] * (config.scorers.placement == "separate")
    if ranks := config.critic.separate_ranks(learner):
        scorers.append(f"The critic has {counted(ranks, 'process', 'processes')} of its own, and learns meanwhile.")
    scorers += [f"A vLLM process of its own serves {name} for roles and judges." for name in config.role_models]
    names = ", ".join(keys.name for keys in config.reward.models)
    rewards = [f"Reward models score every finished episode: {names}."] if names else []
    if config.reward.is_shared and config.device == "cuda":
        served = ", ".join(keys.name for keys in config.reward.served)
        rewards.append(f"On the GPUs of the learner: {served}.")
    every = f", and after every {counted(config.eval.every, 'step')}" if config.eval.every else ""
    evaluated = f"Before and after the run{every}, up to {counted(config.eval.tasks, 'held-out task')} x "
    evaluated += f"{counted(config.eval.samples, 'episode')} are an evaluation (eval.tasks, eval.samples)."
    evaluations = [evaluated] if config.eval.tasks else []
    settings = "`agentrl config` shows every setting and its source."
    return " ".join((here, model, *scorers, load, *rewards, wait, *evaluations, settings))


def _sharing(config: Config) -> str:
    """Return how engines and learner share the hardware."""
    if config.device == "cuda":
        is_shared = config.engine.placement == "colocate"
        return "taking turns on the same GPUs" if is_shared else "on separate GPUs"
    way = "side by side" if config.rollout.max_staleness else "taking turns"
    return f"{way} on the CPU ({config.engine.threads} and {config.learner.threads} threads each)"
