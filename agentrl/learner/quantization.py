"""QLoRA (Dettmers et al., arXiv:2305.14314): the frozen weights under adapters in 4 bits (NF4), by bitsandbytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BitsAndBytesConfig


def loading_options(device: torch.device) -> dict[str, Any]:
    """Return the options with which `from_pretrained` quantizes the weights of all linear layers but the head."""
    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.float32,
    )
    return {"quantization_config": config, "device_map": {"": device}}


def set_compute(model: nn.Module, compute: torch.dtype) -> None:
    """Let the quantized layers compute in this type."""
    from bitsandbytes.nn import Linear4bit

    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.compute_dtype = compute


def plain_state(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of the model's state by name: quantized weights in float32, without their statistics."""
    state = model.state_dict(keep_vars=True)
    for name, tensor in state.items():
        owner, inner, _ = name.rpartition(".weight.")
        if not (inner and f"{owner}.weight" in state):
            yield name, _dequantized(tensor)


def _dequantized(tensor: Tensor) -> Tensor:
    state = getattr(tensor, "quant_state", None)
    if state is None:
        return tensor
    from bitsandbytes.functional import dequantize_4bit

    weight: Tensor = dequantize_4bit(tensor.data, state)
    return weight.float()
