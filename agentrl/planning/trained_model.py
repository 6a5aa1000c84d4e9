"""Memory of a model that a learner rank trains: its state, and what an update adds at its peak.

Every term names the code that allocates it. Bytes are those of one rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentrl.config.schema import LearnerSection, LoraSection
from agentrl.planning.need import Item, total, used
from agentrl.planning.shape import BFLOAT16, FLOAT32, ModelShape

NF4_BYTES = 4.127 / 8
"""Of a quantized weight: 4 bits and its share of the double-quantized constants (Dettmers et al. 2023, section 3)."""
BUCKET, BUCKET_ON_CPU = 500_000_000, 1 << 25
"""Elements of DeepSpeed's buckets of gradients (`reduce_bucket_size`, and `elements_per_buffer` at stage 0)."""
SPREAD = {1: (1.0, 4.5), 2: (1.0, 5.0), 3: (1.9, 3.2)}
"""On a CPU, by ZeRO stage: the pages of copies of the trained parameters, and of buckets, which each update finds
elsewhere in the heap, in shares of one copy and of one bucket in float32. Measured on two ranks."""
LIVE = 1_000_000_000
"""Parameters that ZeRO stage 3 keeps gathered (`max_live_parameters`, `max_reuse_distance`)."""
MULTIPROCESSORS = 132
"""Of an H100 and an H200."""
CHUNK_LOGITS, KEPT_LOGITS = {"cpu": 1 << 24, "cuda": 1 << 27}, 1 << 28
"""Those of `learner/heads.py`."""


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model that each of `section.ranks` ranks trains; `section` is that of its own optimizer.

    Of ranks that share weight matrices, `shape` is that of one rank's part.
    `width` is the bytes of the compute type, `tokens` the most tokens of a micro-batch, or of a rank's share of one.
    `has_logits` is False for a critic. `is_offloaded` is True if the optimizer's state waits in CPU memory between
    updates. `longest` are the tokens of the longest sequence, 0 if one may fill a micro-batch.
    """

    shape: ModelShape
    section: LearnerSection
    lora: LoraSection
    width: int
    tokens: int
    is_on_gpu: bool
    has_checkpointing: bool
    has_logits: bool = True
    is_offloaded: bool = False
    longest: int = 0

    @property
    def stage(self) -> int:
        """ZeRO stage."""
        return self.section.stage

    @property
    def is_parked(self) -> bool:
        """Whether parameters are in CPU memory, and on the GPU only while they compute (`offload_param`)."""
        return self.is_on_gpu and bool(self.section.parameter_offload)

    @property
    def trained(self) -> int:
        """Parameters with a gradient."""
        return self.shape.adapters(self.lora.rank, self.lora.layers) if self.lora.rank else self.shape.parameters

    @property
    def attended_keys(self) -> int:
        """Width of the keys of one token in attention, on all ranks that share it: few heads are repeated."""
        return self.shape.head_size * max(self.shape.kv_heads, self.section.sequence_parallel)

    def shard(self, elements: int, stage: int) -> int:
        """Return this rank's share of elements that are sharded from a ZeRO stage on (Rajbhandari et al. 2020)."""
        return -(-elements // self.section.replicas) if self.stage >= stage else elements


# --------------------------------------------------------------------------------------------------------------
# State: what stays between updates, and gradients, which stay from the first micro-batch to the optimizer step.


def weights(model: TrainedModel) -> Item:
    """Return the parameters: float32, those under adapters in the compute type, or in 4 bits."""
    shape, trained = model.shape, FLOAT32 * model.trained
    if not model.lora.rank:
        return Item("parameters", model.shard(trained, 3))
    if model.lora.load_in_4bit:
        whole = trained + FLOAT32 * (shape.parameters - shape.matrices)
        return Item("parameters", model.shard(whole, 3) + int(shape.matrices * NF4_BYTES))
    return Item("parameters", model.shard(trained + shape.frozen_bytes(model.width), 3))


def gradients(model: TrainedModel) -> Item:
    """Return the accumulated gradients, in float32."""
    return Item("gradients", FLOAT32 * model.shard(model.trained, 2))


def optimizer(model: TrainedModel) -> Item:
    """Return the optimizer's state: moments, and the copy of the parameters that it updates."""
    return Item("optimizer", _moments(model) + _copy(model))


def _copy(model: TrainedModel) -> int:
    """Return the bytes of DeepSpeed's clone of a rank's part of the parameters.

    It is in `single_partition_of_fp32_groups`, and at stage 3 in `fp32_partitioned_groups_flat`: it would be no clone
    if the device were a name, with which `_create_fp32_partitions` compares it. On a CPU, SPREAD has that of stage 3.
    """
    has_copy = model.stage in (1, 2) or (model.stage == 3 and model.is_on_gpu)
    return FLOAT32 * model.shard(model.trained, 1) if has_copy else 0


def _waiting(model: TrainedModel) -> int:
    """Return what waits in CPU memory between updates: of stage 3 the moments (learner/offload.py)."""
    if not model.is_offloaded or model.section.offload:
        return 0
    return _moments(model) + (_copy(model) if model.stage < 3 else 0)


def _moments(model: TrainedModel) -> int:
    if model.section.optimizer == "adamw_8bit":
        return 2 * model.trained
    if model.section.optimizer == "muon":  # one moment for hidden matrices, two for the rest
        matrices = model.trained if model.lora.rank else model.shape.matrices
        return FLOAT32 * (2 * model.trained - matrices)
    return 2 * FLOAT32 * model.shard(model.trained, 1)


def average(model: TrainedModel) -> Item:
    """Return the rank's part of the EMA of the policy."""
    return Item("EMA", FLOAT32 * -(-model.trained // model.section.replicas) if model.section.ema else 0)


def buckets(model: TrainedModel) -> Item:
    """Return the buffers in which DeepSpeed collects gradients, one for each type in which they travel.

    At stage 0 it is a copy of the gradients of several ranks, made after the last backward pass.
    """
    types = (BFLOAT16, FLOAT32) if model.width == BFLOAT16 else (FLOAT32,)
    if model.stage == 0:
        nbytes = FLOAT32 * min(BUCKET, model.trained) if model.section.replicas > 1 else 0
    elif model.is_on_gpu:
        nbytes = BUCKET * (sum(types) if model.stage == 3 else FLOAT32 * len(types))
    else:
        copies, spread = SPREAD[model.stage]
        nbytes = int(FLOAT32 * (copies * model.trained + spread * min(BUCKET_ON_CPU, model.trained)))
    return Item("gradient buckets", nbytes)


def state(model: TrainedModel) -> tuple[Item, ...]:
    """Return what a rank holds on its device between updates; at stage 3 also the buffer of accumulated gradients."""
    nbytes = 0 if model.section.offload else optimizer(model).nbytes - _waiting(model)
    kept = buckets(model) if model.stage == 3 else Item("", 0)
    parameters = () if model.is_parked else (weights(model), average(model))
    is_kept = model.stage == 3 and not model.section.offload  # `grad_partitions_flat_buffer`
    return used(*parameters, *([gradients(model)] if is_kept else []), Item("optimizer", nbytes), kept)


def offloaded(model: TrainedModel) -> tuple[Item, ...]:
    """Return what a rank holds of the optimizer in CPU memory instead of on its GPU.

    Gradients too, if the optimizer steps there; at stage 3 both `grad_partitions_flat_buffer` and the `grad` of each
    copy.
    """
    if not model.section.offload:
        return used(Item("optimizer", _waiting(model)))
    nbytes = FLOAT32 * model.shard(model.trained, 1)
    of_buffer = pinned(nbytes) if model.stage == 3 else 0
    return used(optimizer(model), Item("gradients", nbytes + of_buffer))


def parked(model: TrainedModel) -> tuple[Item, ...]:
    """Return what a rank holds of the parameters in CPU memory instead of on its GPU, and their EMA.

    Trained ones are in one pinned buffer (`param_groups_fp16_flat_cpu_memory`), rounded up by PyTorch to a power of 2.
    """
    if not model.is_parked:
        return ()
    flat = FLOAT32 * model.shard(model.trained, 3)
    return used(weights(model), average(model), Item("rounding", pinned(flat) - flat))


def pinned(nbytes: int) -> int:
    """Return the bytes of pinned memory that PyTorch takes for a tensor: it rounds up to a power of 2."""
    return 1 << (nbytes - 1).bit_length() if nbytes else 0


def pinned_by_loading(model: TrainedModel) -> int:
    """Return the pinned CPU memory in which a model's parameters arrive, and which PyTorch keeps for other tensors.

    Each parameter has its own (`partition_parameters.py`). Those that are neither matrices nor embeddings are small.
    """
    if not model.is_parked or not model.section.parameter_offload.get("pin_memory", True):
        return 0
    shape, ranks = model.shape, model.section.replicas
    sizes = [linear.inputs * linear.outputs for linear in shape.linears for _ in linear.names]
    sizes += [shape.embedding] * (1 if shape.is_tied else 2)
    others = FLOAT32 * max(0, shape.parameters - sum(sizes)) // ranks
    return others + sum(pinned(FLOAT32 * -(-size // ranks)) for size in sizes)


def update(model: TrainedModel) -> tuple[Item, ...]:
    """Return what an update adds to the state at its peak: in the last micro-batch of several, or after it."""
    is_elsewhere = model.stage == 3 or (model.section.offload and model.stage > 1)
    mine = Item("", 0) if is_elsewhere else gradients(model)
    back = Item("optimizer", _waiting(model))
    bucket, passes = buckets(model), forward(model, has_gradient=True)
    if model.stage == 0:
        return used(mine, back, *max((bucket,), passes, key=total))
    return used(mine, back, *([bucket] if model.stage < 3 else []), *passes)


# --------------------------------------------------------------------------------------------------------------
# Forward and backward passes over one micro-batch.


def forward(model: TrainedModel, *, has_gradient: bool) -> tuple[Item, ...]:
    """Return the peak of the passes over one micro-batch, beside state and gradients."""
    layers = activations(model) if has_gradient else Item("activations", layer_bytes(model) * model.tokens)
    copies, logits = casts(model, has_gradient=has_gradient), head(model, has_gradient=has_gradient)
    attention = attention_gradients(model) if has_gradient else Item("", 0)
    return used(layers, copies, gathered(model), max(logits, attention, key=lambda item: item.nbytes))


def layer_bytes(model: TrainedModel) -> int:
    """Return the bytes that one layer keeps of one token for the backward pass.

    Counted on transformers' Llama, Qwen2 and Qwen3 (tests/unit/planning/test_trained_model.py): the residual stream
    and the norms are float32; autocast copies the input of every product. Ranks that share a micro-batch keep the
    result of attention twice, before and after they exchange heads.
    """
    shape, width = model.shape, model.width
    norms = 2 * (2 * FLOAT32 * shape.hidden + FLOAT32)
    products = 5 if shape.is_gated else 4  # queries, keys and values; gate and up
    copies = products * width if width == BFLOAT16 else 2 * width
    results = 2 if model.section.sequence_parallel > 1 else 1
    attention = width * ((1 + results) * shape.queries + 2 * model.attended_keys) + FLOAT32 * shape.heads
    if shape.has_head_norm:
        attention += (FLOAT32 + width) * (shape.queries + shape.keys) + FLOAT32 * (shape.heads + shape.kv_heads)
    mlp = (4 if shape.is_gated else 2) * width * shape.inner
    return norms + copies * shape.hidden + attention + mlp


def activations(model: TrainedModel) -> Item:
    """Return what the layers keep for the backward pass; with checkpointing their inputs, and one layer again."""
    layers = model.shape.layers
    if not model.has_checkpointing:
        return Item("activations", layers * layer_bytes(model) * model.tokens)
    return Item("activations", (layers * FLOAT32 * model.shape.hidden + layer_bytes(model)) * model.tokens)


def attention_gradients(model: TrainedModel) -> Item:
    """Return the float32 gradients of queries in the backward pass of one layer, which follows that of the head.

    Those that give the same digits again are several copies, so that few heads of one sequence keep all multiprocessors
    of a GPU busy (`mha_varlen_bwd` in PyTorch's flash_api.cpp); here sequences are as long as they may be.
    """
    if not model.is_on_gpu or model.width != BFLOAT16:
        return Item("", 0)
    sharers = model.section.sequence_parallel
    heads = max(1, model.shape.heads // sharers)
    sequences = -(-model.tokens * sharers // model.longest) if model.longest else 1
    copies = -(-MULTIPROCESSORS // (heads * sequences)) if model.section.deterministic else 1
    return Item("gradients of queries", FLOAT32 * copies * model.tokens * model.shape.queries)


def casts(model: TrainedModel, *, has_gradient: bool) -> Item:
    """Return autocast's 16-bit copies of the trained matrices, which live as long as the activations."""
    is_kept = has_gradient and model.width == BFLOAT16 and model.stage < 3 and not model.lora.rank
    return Item("16-bit copies", BFLOAT16 * model.shape.matrices if is_kept else 0)


def gathered(model: TrainedModel) -> Item:
    """Return the parameters that stage 3 has gathered from all ranks, matrices in the compute type."""
    if model.stage < 3:
        return Item("", 0)
    return Item("gathered parameters", model.width * min(LIVE, model.shape.parameters))


def head(model: TrainedModel, *, has_gradient: bool) -> Item:
    """Return what the head adds: chunks of float32 logits, its weight in the compute type, its float32 gradient."""
    if not model.has_logits:
        return Item("", 0)
    shape, width = model.shape, model.width
    logits = model.tokens * shape.vocabulary
    chunk = min(logits, max(shape.vocabulary, CHUNK_LOGITS["cuda" if model.is_on_gpu else "cpu"]))
    weight = 0
    if width == BFLOAT16:  # a CPU widens its weight again, because it would round products of bfloat16
        weight = (BFLOAT16 if model.is_on_gpu else BFLOAT16 + FLOAT32) * shape.embedding
    first_pass = weight + 2 * FLOAT32 * chunk
    if not has_gradient:
        return Item("head", first_pass)
    kept = width * logits if logits <= KEPT_LOGITS else 0
    gradient = 0 if model.lora.rank else shape.embedding
    copies = (FLOAT32 + BFLOAT16) * chunk if width == BFLOAT16 or not kept else 0
    second_pass = weight + kept + copies + (FLOAT32 + width) * gradient
    backward = 2 * FLOAT32 * gradient  # multiplied by the gradient of the loss
    return Item("head", max(first_pass + kept, second_pass, backward))
