"""Memory of a vLLM engine: its weights, its KV cache, and what it needs to run at all."""

from __future__ import annotations

from dataclasses import dataclass

from agentrl.config.machine import GIB
from agentrl.config.schema import EngineSection, LoraSection
from agentrl.planning.need import Item, Need, Phase, total, used
from agentrl.planning.shape import FLOAT32, ModelShape

CONTEXT = int(0.75 * GIB)
"""A process's CUDA context, with the kernels of torch and the buffers of NCCL. Assumed."""
GRAPHS = int(1.0 * GIB)
"""CUDA graphs of an engine that compiles its model. Assumed."""
BATCHED_TOKENS = 8192
"""Tokens that an engine reads in one pass (`max_num_batched_tokens`): vLLM profiles one to find its peak."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """An engine on the GPUs of `section`, or on a CPU, that serves sequences of up to `max_context` tokens."""

    shape: ModelShape
    section: EngineSection
    lora: LoraSection
    width: int
    max_context: int
    is_on_gpu: bool

    @property
    def split(self) -> int:
        """GPUs of the engine, over which its layers are split, or divided, which takes about as much memory of each."""
        return self.section.gpus

    @property
    def kv_bytes(self) -> int:
        """Bytes of a token in the KV cache of one GPU: of its layers, and of its heads of keys.

        GPUs that share a layer have copies of a head if there are fewer heads than GPUs, and of a latent vector.
        """
        shape, section = self.shape, self.section
        sharers = max(1, section.tensor_parallel)  # 0 in a section that is not resolved
        layers, heads = -(-shape.layers // section.pipeline_parallel), -(-shape.kv_heads // sharers)
        return layers * (shape.latent or 2 * heads * shape.head_size) * self.width


def fixed(engine: ServedModel) -> tuple[Item, ...]:
    """Return what one device of an engine holds beside its KV cache.

    On CPUs vLLM packs every matrix, and keeps the embedding and the head beside their packed copies.
    """
    adapters = 0
    if engine.lora.publish == "adapter":  # two at once: engine/vllm/settings.py
        adapters = 2 * engine.width * engine.shape.adapters(engine.lora.rank, engine.lora.layers)
    has_graphs = engine.is_on_gpu and not engine.section.enforce_eager
    return used(
        Item("weights", engine.width * engine.shape.parameters // engine.split),
        Item("packed vocabulary", 0 if engine.is_on_gpu else 2 * engine.width * engine.shape.embedding),
        Item("adapters", adapters),
        Item("activations", activations(engine)),
        Item("CUDA graphs", GRAPHS if has_graphs else 0),
        Item("CUDA context", CONTEXT if engine.is_on_gpu else 0),
    )


def activations(engine: ServedModel) -> int:
    """Return the peak of one forward pass: a layer's intermediate states, then the logits of every sequence.

    A CPU holds those of attention, then those of the MLP; for a GPU the sum is assumed.
    """
    shape, tokens = engine.shape, max(BATCHED_TOKENS, engine.max_context)
    attention, mlp = 2 * shape.queries + 2 * shape.keys, 3 * shape.inner
    states = 4 * shape.hidden + (attention + mlp) // engine.split
    if not engine.is_on_gpu:
        states = max(3 * shape.hidden + attention, 2 * shape.hidden + mlp)
    logits = engine.section.max_num_seqs * shape.vocabulary * 3 * FLOAT32
    return max(tokens * engine.width * states, logits)


def share(engine: ServedModel, gpu_bytes: int) -> int:
    """Return the memory of a GPU that the engine may use, which vLLM fills with KV cache."""
    return int(engine.section.gpu_memory_utilization * gpu_bytes)


def cache(engine: ServedModel, gpu_bytes: int) -> Item:
    """Return the KV cache: what the share leaves, and at least one sequence, without which vLLM does not start."""
    least = engine.kv_bytes * engine.max_context
    if not engine.is_on_gpu:
        return Item("KV cache", max(least, int(engine.section.kv_cache_gib * GIB)))
    return Item("KV cache", max(least, share(engine, gpu_bytes) - total(fixed(engine))))


def starting(engine: ServedModel, device: str, count: int, gpu_bytes: int) -> Need:
    """Return the least that vLLM needs to start, in what it is given: a share of each GPU, a KV cache on a CPU."""
    sequence, section = Item("KV cache of one sequence", engine.kv_bytes * engine.max_context), engine.section
    if engine.is_on_gpu:
        limit = f"engine.gpu_memory_utilization {section.gpu_memory_utilization:g} leaves the engine"
        items, most = (*fixed(engine), sequence), share(engine, gpu_bytes)
        return Need(f"{device}'s share", count, Phase.START, items, most, limit)
    limit = f"engine.kv_cache_gib {section.kv_cache_gib:g} leaves the engine"
    return Need(f"{device}'s KV cache", count, Phase.START, (sequence,), int(section.kv_cache_gib * GIB), limit)


def awake(engine: ServedModel, gpu_bytes: int) -> tuple[Item, ...]:
    """Return what one device of an engine holds while it samples."""
    return used(*fixed(engine), cache(engine, gpu_bytes))


def asleep(engine: ServedModel) -> tuple[Item, ...]:
    """Return what is left on a GPU while its learner rank works."""
    names = ("CUDA graphs", "CUDA context")
    return tuple(item for item in fixed(engine) if item.name in names)


def kept_asleep(engine: ServedModel) -> tuple[Item, ...]:
    """Return what an engine that sleeps keeps in CPU memory: weights under adapters, which no publication brings."""
    is_kept = engine.lora.publish == "adapter"
    return used(Item("engine's weights", engine.width * engine.shape.parameters * is_kept))
