"""Expected seconds of a step by phase, from the constants of `hardware.py`.

Engines are bound by the memory rate, passes of the learner by operations, exchanges by links. Nothing overlaps inside a
phase; with `rollout.max_staleness` above 0 sampling and learning do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agentrl.config.schema import Config
from agentrl.planning.engine import ServedModel, cache
from agentrl.planning.hardware import MEMORY_SHARE, PREFILL_SHARE, TRAINING_SHARE, Hardware
from agentrl.planning.models import RunModels
from agentrl.planning.need import Phase
from agentrl.planning.needs import engine_of
from agentrl.planning.ranks import Rank
from agentrl.planning.shape import BFLOAT16, FLOAT32, ModelShape
from agentrl.planning.trained_model import TrainedModel

FLOAT32_SLOWDOWN = 15
"""bfloat16 operations per float32 operation: 989 to 67 TFLOP/s on an H100 (NVIDIA H100 datasheet)."""
HOST_RATE, PCIE_RATE = 100e9, 25e9
"""Bytes per second of a CPU's optimizer step, and of a copy between a GPU and CPU memory. Assumed."""
TOKEN_S, LAYER_S = 4e-3, 1e-3
"""The least time of a token of an engine, and of a layer in a pass of the learner, which launch kernels. Assumed."""
ALL_REDUCE_S = 15e-6
"""The least time of an all-reduce between the GPUs of an engine. Assumed."""
ADAM_BYTES = 28
"""That an optimizer step reads and writes per parameter: weight, gradient and two moments."""


@dataclass(frozen=True, slots=True)
class Load:
    """The samples of a step: `prompt` tokens before and `response` tokens after, in each of `sequences`."""

    prompts: int
    sequences: int
    prompt: int
    response: int

    @classmethod
    def of(cls, config: Config, prompt_tokens: int) -> Load:
        """Return the load of a configuration whose prompts have that many tokens; every response is of full length."""
        rollout = config.rollout
        prompt = min(prompt_tokens, config.model.max_context - 1)
        response = min(config.model.max_context - prompt, rollout.max_tokens * max(1, rollout.max_turns))
        return cls(rollout.prompts, rollout.samples, prompt, response)

    @property
    def learned(self) -> int:
        """Tokens that go through the learner: a prompt once for its group."""
        return self.prompts * self.prompt + self.sequences * self.response


@dataclass(frozen=True, slots=True)
class Seconds:
    """Expected seconds of a phase of one step."""

    phase: Phase
    seconds: float


def seconds_of(config: Config, models: RunModels, hardware: Hardware, prompt_tokens: int) -> tuple[Seconds, ...]:
    """Return the seconds of every phase of a step on GPUs; nothing for CPUs, of which no constants are known."""
    if config.device != "cuda":
        return ()
    load, engine = Load.of(config, prompt_tokens), engine_of(config, models)
    found = [Seconds(Phase.SAMPLING, sampling_s(engine, load, hardware))]
    if models.learns:
        rank = Rank(config, models)
        found.append(Seconds(Phase.SCORING, scoring_s(rank, load, hardware)))
        found.append(Seconds(Phase.UPDATE, update_s(rank, load, hardware)))
        found.append(Seconds(Phase.PUBLICATION, publication_s(rank, engine, hardware)))
    return tuple(one for one in found if one.seconds)


def step_s(config: Config, seconds: tuple[Seconds, ...]) -> float:
    """Return the seconds of a step."""
    sampling = sum(one.seconds for one in seconds if one.phase is Phase.SAMPLING)
    learning = sum(one.seconds for one in seconds if one.phase in (Phase.SCORING, Phase.UPDATE))
    published = sum(one.seconds for one in seconds if one.phase is Phase.PUBLICATION)
    overlap = min(sampling, learning) if config.rollout.max_staleness else 0.0
    return sampling + learning + published - overlap


# --------------------------------------------------------------------------------------------------------------
# Engines.


def sampling_s(engine: ServedModel, load: Load, hardware: Hardware) -> float:
    """Return the seconds in which the engines sample a batch."""
    kind, section, split = hardware.kind, engine.section, engine.split
    own = -(-load.sequences // section.count)
    length = load.prompt + load.response
    room = cache(engine, hardware.gpu_bytes).nbytes // (engine.kv_bytes * length)
    at_once = max(1, min(own, section.max_num_seqs, room))
    flops = kind.flops * PREFILL_SHARE * split
    read = engine.width * engine.shape.parameters / split + at_once * engine.kv_bytes * (length - load.response / 2)
    token = max(TOKEN_S, read / (kind.memory_rate * MEMORY_SHARE), 2 * engine.shape.active * at_once / flops)
    if split > 1:  # two all-reduces in each layer
        reductions, states = 2 * engine.shape.layers, at_once * engine.shape.hidden * engine.width
        token += reductions * (ALL_REDUCE_S + 2 * states * (split - 1) / split / hardware.link_rate(split))
    read_prompts = own / (load.sequences / load.prompts) if section.prefix_caching else own
    prefill = 2 * engine.shape.active * read_prompts * load.prompt / flops
    return -(-own // at_once) * load.response * token + prefill


# --------------------------------------------------------------------------------------------------------------
# The learner.


def pass_flops(shape: ModelShape, tokens: int, length: int) -> float:
    """Return the operations of a forward pass: two for each parameter and token, and causal attention."""
    return tokens * (2 * shape.active + 2 * shape.layers * shape.queries * length)


def scoring_s(rank: Rank, load: Load, hardware: Hardware) -> float:
    """Return the seconds of the columns before an update."""
    length, flops = load.prompt + load.response, _learner_flops(rank.policy, hardware)
    ranks, critic = rank.config.learner.ranks, rank.critic
    old = pass_flops(rank.models.policy, load.learned, length) / flops / ranks if rank.models.has_old else 0.0
    values = pass_flops(critic.shape, load.learned, length) / flops / critic.section.ranks if critic else 0.0
    alone = 1 if rank.config.scorers.placement == "separate" else ranks
    frozen = sum(pass_flops(shape, load.learned, length) / flops / alone for shape in rank.models.frozen)
    return max(old + frozen, values) if rank.is_critic_apart else old + values + frozen


def update_s(rank: Rank, load: Load, hardware: Hardware) -> float:
    """Return the seconds of all updates of policy and critic, which learn side by side if the critic is separate."""
    seconds = [_trained_s(model, load, hardware) for model in (rank.policy, rank.critic) if model]
    return max(seconds) if rank.is_critic_apart else sum(seconds)


def _trained_s(model: TrainedModel, load: Load, hardware: Hardware) -> float:
    ranks, section = model.section.replicas, model.section
    tokens = load.learned * section.passes
    passes = 4 if model.has_checkpointing else 3  # a backward pass costs two, checkpointing a forward pass more
    flops = passes * pass_flops(model.shape, tokens, load.prompt + load.response)
    micro_batches = max(section.updates, -(-tokens // (ranks * model.tokens)))
    launched = micro_batches * passes * model.shape.layers * LAYER_S
    computed = max(launched, flops / _learner_flops(model, hardware) / ranks)
    exchanged = sum(_exchanges(model, micro_batches, hardware)) + _heads_s(model, tokens, hardware)
    exchanged += _states_s(model, tokens, hardware)
    return computed + exchanged + section.updates * _optimizer_s(model, hardware)


def _learner_flops(model: TrainedModel, hardware: Hardware) -> float:
    return hardware.kind.flops * TRAINING_SHARE / (1 if model.width == BFLOAT16 else FLOAT32_SLOWDOWN)


def _exchanges(model: TrainedModel, micro_batches: int, hardware: Hardware) -> Iterator[float]:
    """Yield the seconds in which ranks exchange gradients, and parameters at stage 3."""
    ranks = model.section.replicas
    if ranks == 1:
        return
    share = (ranks - 1) / ranks / hardware.link_rate(ranks)
    if model.stage == 0:
        yield 2 * FLOAT32 * model.trained * share * model.section.updates
        return
    times = micro_batches if model.stage > 1 else model.section.updates
    yield model.width * model.trained * share * times
    if model.stage < 3:
        yield FLOAT32 * model.trained * share * model.section.updates  # the updated parameters
    else:
        yield (3 if model.has_checkpointing else 2) * model.width * model.shape.parameters * share * times


def _heads_s(model: TrainedModel, tokens: int, hardware: Hardware) -> float:
    """Return the seconds in which ranks that share micro-batches exchange queries, keys, values and results."""
    size = model.section.sequence_parallel
    passes = 3 if model.has_checkpointing else 2
    nbytes = model.width * 2 * (model.shape.queries + model.attended_keys) * model.shape.layers * tokens * passes
    return nbytes / model.section.ranks * (size - 1) / size / hardware.link_rate(size)


def _states_s(model: TrainedModel, tokens: int, hardware: Hardware) -> float:
    """Return the seconds in which ranks that share matrices add up hidden states and their gradients, in each layer.

    AutoTP adds up the outputs of attention and MLP in the compute type, and in float32 the gradients of the inputs of
    their first matrices, one by one.
    """
    size = model.section.tensor_parallel
    results = model.width * 2 * (2 if model.has_checkpointing else 1)
    inputs = FLOAT32 * (5 if model.shape.is_gated else 4)
    nbytes = (results + inputs) * model.shape.hidden * model.shape.layers * tokens
    return 2 * nbytes / model.section.replicas * (size - 1) / size / hardware.link_rate(size)


def _optimizer_s(model: TrainedModel, hardware: Hardware) -> float:
    shard = model.shard(model.trained, 1)
    if not model.section.offload:
        return ADAM_BYTES * shard / (hardware.kind.memory_rate * MEMORY_SHARE)
    on_machine = max(1, min(model.section.ranks, hardware.gpus))
    return ADAM_BYTES * shard * on_machine / HOST_RATE + 2 * FLOAT32 * shard / PCIE_RATE


def publication_s(rank: Rank, engine: ServedModel, hardware: Hardware) -> float:
    """Return the seconds in which the weights reach the engines."""
    policy, ranks, nbytes, whole = rank.policy, rank.config.learner.ranks, rank.published, rank.models.policy
    if rank.config.lora.publish == "adapter":
        return nbytes / PCIE_RATE
    if rank.config.engine.placement == "colocate":
        sent = 2 * nbytes / (hardware.kind.memory_rate * MEMORY_SHARE)
    else:
        sent = nbytes / hardware.link_rate(ranks + rank.config.engine.count * engine.split)
    is_gathered = (policy.stage == 3 and ranks > 1) or rank.config.learner.tensor_parallel > 1
    return sent + (FLOAT32 * whole.parameters / hardware.link_rate(ranks) if is_gathered else 0.0)
