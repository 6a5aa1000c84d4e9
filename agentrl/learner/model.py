"""A causal language model over packed micro-batches: loading, attention over prefix trees, logprobs, loss."""
# ruff: noqa: N803, N806

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_layers import GradientCheckpointingLayer

from agentrl.algorithms.sample import plain_sequence
from agentrl.config.models import check_attention
from agentrl.config.packing import unapplied, unknown, unpackable
from agentrl.errors import ConfigError
from agentrl.learner import tensor_parallel
from agentrl.learner.attention.spans import Attention
from agentrl.learner.batch import build_trees
from agentrl.learner.heads import ActionLoss, logprobs
from agentrl.learner.micro_batch import MicroBatch, pack
from agentrl.learner.quantization import loading_options, set_compute
from agentrl.learner.sharding import Sharding
from agentrl.types import SampleId

ATTENTION = "agentrl_trees"
FIRST_LAYERS = 2
P = TypeVar("P", bound="PackedModel")
LOADING: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": ATTENTION}


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    attention: Attention,
    scaling: float | None = None,
    sliding_window: int | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention [1, heads, N, head size] -> [1, N, heads, head size]. Raises TypeError for one of another kind."""
    if dropout and module.training:
        others["dropout"] = dropout
    if why := unapplied(query, key, value, attention_mask, others):
        raise TypeError(why)
    # With the tokens before the heads, as the projections write them and the output is read, no copy is strided.
    query_NHD, key_NGD, value_NGD = (states.to(value.dtype)[0].transpose(0, 1) for states in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attention(query_NHD, key_NGD, value_NGD, scale, sliding_window)[None], None


AttentionInterface.register(ATTENTION, attend)


class PackedModel(nn.Module):
    """A model over micro-batches: loss or logprobs of the actions. `compute` is the type of its matrix products."""

    auto: ClassVar[Any] = AutoModelForCausalLM
    labels: ClassVar[dict[str, int]] = {}
    role, key = "model", "model.name"
    ds_autotp_parsed = True  # `divided` applies AutoTP to models without an optimizer too: DeepSpeed need not

    def __init__(self, model: PreTrainedModel, compute: torch.dtype) -> None:
        super().__init__()
        self.model, self.compute = model, compute

    @property
    def head_weight(self) -> nn.Parameter:
        """[vocabulary, hidden]; the embedding itself if the two are tied."""
        weight: nn.Parameter = self.model.get_output_embeddings().weight
        return weight

    def forward(self, micro_batch: MicroBatch, loss: Callable[..., Tensor] | None = None) -> Tensor:
        """Return the summed loss of the actions; without `loss` what `output` computes for each [A], in float32."""
        hidden_ND = self.hidden(micro_batch)
        with torch.autocast(hidden_ND.device.type, enabled=False):
            return self.output(hidden_ND[micro_batch.source_A], micro_batch, loss)

    def hidden(self, micro_batch: MicroBatch) -> Tensor:
        """Return the hidden state [N, D] of each token, after the last layer."""
        with torch.autocast(micro_batch.ids_N.device.type, self.compute, enabled=self.compute != torch.float32):
            states_ND: Tensor = self.model.base_model(
                input_ids=micro_batch.ids_N[None],
                position_ids=micro_batch.positions_N[None],
                use_cache=False,
                attention=micro_batch.attention,
            ).last_hidden_state[0]
            return states_ND

    def output(self, hidden_AD: Tensor, micro_batch: MicroBatch, loss: Callable[..., Tensor] | None) -> Tensor:
        """Return the summed loss of the actions; without `loss` their logprobs [A]."""
        # Selected before the cast, so that the gradient of a token that many branches share is summed in float32.
        hidden_AD, weight_VD = hidden_AD.to(self.compute), self.head_weight
        targets_A, temperature_A = micro_batch.targets_A, micro_batch.temperature_A
        if loss is None:
            return micro_batch.join(logprobs(hidden_AD, weight_VD, targets_A, temperature_A))
        whole = micro_batch.over_all(loss)
        result: Tensor = ActionLoss.apply(hidden_AD, weight_VD, targets_A, temperature_A, whole)  # type: ignore[no-untyped-call]
        return result

    def plain_output(self, ids_BL: Tensor) -> Tensor:
        """Return [B, L - 1] what `forward` computes without a loss if ids[1:] are actions, by the model's own code."""
        logits_BLV = self.model(input_ids=ids_BL, use_cache=False).logits[:, :-1].float()
        return torch.log_softmax(logits_BLV, -1).gather(2, ids_BL[:, 1:, None]).squeeze(2)


def load_model(
    folder: Path,
    compute: torch.dtype,
    *,
    gradient_checkpointing: bool = False,
    quantized_on: torch.device | None = None,
    sharding: Sharding | None = None,
    sharers: int = 1,
) -> PackedModel:
    """Return the model in `folder`, with float32 parameters; `quantized_on` a device, those of its layers in 4 bits.

    With `sharding`, or with several `sharers` of each matrix, all ranks load it together. Raises ConfigError if it
    cannot be read or trained.
    """
    packed, _ = load(
        PackedModel, folder, compute, sharding, quantized_on, gradient_checkpointing=gradient_checkpointing
    )
    return divided(packed, sharers, folder)


def load(
    kind: type[P],
    folder: Path,
    compute: torch.dtype,
    sharding: Sharding | None,
    quantized_on: torch.device | None = None,
    *,
    gradient_checkpointing: bool,
) -> tuple[P, set[str]]:
    """Load a model and check its packing. Returns also the names of the tensors that its files do not have."""
    check_attention(folder, kind.key)
    try:
        if sharding is not None:
            check_first_layers(kind, folder)
        options = {**LOADING, **kind.labels, **(loading_options(quantized_on) if quantized_on else {})}
        with sharding or nullcontext():
            model, info = kind.auto.from_pretrained(folder, **options, output_loading_info=True)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(f"no {kind.role} can be loaded from {folder}: {error}") from error
    prepare(model, gradient_checkpointing=gradient_checkpointing)
    packed = kind(model, compute)
    if sharding is None:
        check_packing(packed, folder)
    if quantized_on:
        set_compute(model, compute)
    return packed, info["missing_keys"]


def prepare(model: PreTrainedModel, *, gradient_checkpointing: bool) -> None:
    """Switch gradient checkpointing on if asked, and everything that draws random numbers off."""
    if gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    set_modes(model)


def set_modes(model: nn.Module) -> None:
    """Leave the layers that are checkpointed in training mode, and nothing else: several forward passes are compared.

    Quantized layers stay in it too, because in eval mode bitsandbytes repacks their weights for a CPU, which then
    compute no gradient.
    """
    for module in model.modules():
        is_checkpointed = isinstance(module, GradientCheckpointingLayer) and module.gradient_checkpointing
        module.training = is_checkpointed or hasattr(getattr(module, "weight", None), "quant_state")


def check_first_layers(kind: type[PackedModel], folder: Path) -> None:
    """Check the packing of the model's first layers, some of each kind, on rank 0: for one that no rank holds whole."""
    if dist.get_rank():
        return
    config = AutoConfig.from_pretrained(folder, **kind.labels)
    text = config.get_text_config()
    kinds = getattr(text, "layer_types", None) or []
    layers = min(text.num_hidden_layers, max([FIRST_LAYERS, *(1 + kinds.index(each) for each in kinds)]))
    if kinds:
        text.layer_types = kinds[:layers]
    text.num_hidden_layers = layers
    with quiet():
        model = kind.auto.from_pretrained(folder, config=config, **LOADING)
    prepare(model, gradient_checkpointing=False)
    check_packing(kind(model, torch.float32), folder)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from reporting weights that a model does not have, or does not use."""
    log = logging.getLogger("transformers")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def freeze(packed: PackedModel) -> PackedModel:
    """Stop the training of a model, in place, and round the weights of its linear layers to the compute type.

    Every product rounds them to it anyway: no bit of the outputs differs, and the weights take half of the memory.
    """
    embedding = packed.model.get_input_embeddings().weight  # a tied head shares it, and it is read in float32
    for module in packed.modules():
        if isinstance(module, tensor_parallel.LINEAR) and module.weight is not embedding:
            module.to(packed.compute)
            for parameter in module.parameters():
                if hasattr(parameter, "ds_tensor"):
                    parameter.ds_tensor.data = parameter.ds_tensor.data.to(packed.compute)
    return packed.requires_grad_(False)


def check_packing(packed: PackedModel, folder: Path) -> None:
    """Raise ConfigError unless packed sequences have the same output as the model's own attention computes.

    The structure is checked first, because weights that are small hide what it does.
    """
    model, exact, device = packed.model, type(packed)(packed.model, torch.float32), packed.head_weight.device
    if why := unpackable(model, packed.head_weight):
        raise _unknown(model, folder, why)
    ids = [[token % model.config.vocab_size for token in row] for row in (range(24), [*range(8), *range(40, 56)])]
    batch = [plain_sequence(SampleId(0, member), row, prompt=8) for member, row in enumerate(ids)]
    micro_batch = pack(batch, build_trees(batch, range(2))).to(device, torch.float32)
    try:
        with torch.no_grad():
            packed_output = exact(micro_batch).view(2, 16)
            model.set_attn_implementation("eager")  # sdpa ignores soft-capping
            plain_output = exact.plain_output(torch.tensor(ids, device=device))[:, 7:]
            model.set_attn_implementation(ATTENTION)
    except (AttributeError, LookupError, TypeError, RuntimeError) as error:
        raise _unknown(model, folder, str(error)) from error
    if not torch.allclose(packed_output, plain_output, atol=1e-3):
        difference = float((packed_output - plain_output).abs().max())
        raise _unknown(model, folder, f"its outputs over packed sequences are off by {difference:.3g}")


def divided(packed: P, sharers: int, folder: Path) -> P:
    """Leave a rank its part of the model, in place. Raises ConfigError unless the ranks compute what the whole does."""
    if sharers > 1:
        whole = _hidden(packed)
        tensor_parallel.divide(packed.model, sharers)
        hidden = _hidden(packed).to(whole)
        if not torch.allclose(hidden, whole, rtol=1e-3, atol=1e-3):
            difference = float((hidden - whole).abs().max())
            raise _unknown(packed.model, folder, f"hidden states of {sharers} ranks are off by {difference:.3g}")
    return packed


def _hidden(packed: PackedModel) -> Tensor:
    """Return the hidden states of a short sequence, in float32."""
    device = packed.head_weight.device
    row = [token % packed.model.config.vocab_size for token in range(24)]
    batch = [plain_sequence(SampleId(0, 0), row)]
    micro_batch = pack(batch, build_trees(batch, [0])).to(device, torch.float32)
    with torch.no_grad():
        return type(packed)(packed.model, torch.float32).hidden(micro_batch)


def _unknown(model: PreTrainedModel, folder: Path, why: str) -> ConfigError:
    return unknown(f"the model in {folder} ({model.config.model_type})", why)


def checkpoint_tensors(model: PreTrainedModel, named: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of `named` under the names of the model's checkpoint files, tied tensors once.

    `named` is in the order of the model's modules. It is read one layer at a time, because files may hold the tensors
    of a layer in another form.
    """
    tied = set(model.all_tied_weights_keys)
    kept = (one for one in named if one[0] not in tied)
    for _, layer in groupby(kept, key=lambda one: _layer(one[0])):
        yield from revert_weight_conversion(model, dict(layer)).items()


def _layer(name: str) -> str:
    """Return the part of a name up to the number of a layer; the whole of it outside of layers."""
    found = re.match(r"(.*?\.\d+)\.", name)
    return found[1] if found else name
