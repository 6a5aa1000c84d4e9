"""LoRA (Hu et al., arXiv:2106.09685): trained adapters B A on the linear layers of a frozen model, by peft."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from agentrl.config.schema import LoraSection
from agentrl.config.validate import check_targets, is_named
from agentrl.errors import ConfigError
from agentrl.learner.checkpoint import writing
from agentrl.learner.quantization import plain_state

Full = Callable[[Tensor], Tensor]
"""Gathers a tensor that may be sharded over ranks."""
NAME = "default"  # peft's name of a model's only adapter
PREFIX = "base_model.model."  # of every tensor in peft's files
WEIGHTS = "adapter_model.safetensors"


def add_adapters(model: PreTrainedModel, section: LoraSection) -> None:
    """Freeze the model, in place, and add float32 adapters to the linear layers of its blocks that the section names.

    B is 0: the policy does not change. Raises ConfigError if the blocks lack one of the layers.
    """
    from peft import LoraConfig, inject_adapter_in_model

    targets = _targets(model, section.layers)
    config = LoraConfig(r=section.rank, lora_alpha=section.alpha, target_modules=targets, task_type="CAUSAL_LM")
    model.requires_grad_(False)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # all ranks start with the same adapters
            inject_adapter_in_model(config, model)
    except ValueError as error:
        raise ConfigError(f"lora.targets {section.targets!r} does not fit the model: {error}") from None
    for parameter in model.parameters():
        if parameter.requires_grad:  # peft gives adapters of quantized layers the type in which these compute
            parameter.data = parameter.data.float()


def _targets(model: nn.Module, layers: Sequence[str]) -> list[str]:
    """Return the full names of the layers that get adapters; without `layers` those of all that can have them."""
    linear = (name for name, module in model.named_modules() if _is_linear(module))
    known = [name for name in linear if any(map(str.isdigit, name.split(".")))]  # blocks are numbered
    check_targets(layers, known)
    return [name for name in known if not layers or any(is_named(name, layer) for layer in layers)]


def _is_linear(module: nn.Module) -> bool:
    """Return whether a module computes what peft adapts; some routers of experts derive from a linear layer."""
    if not isinstance(module, nn.Linear):
        return False
    return type(module).forward is nn.Linear.forward or hasattr(module.weight, "quant_state")


@contextmanager
def adapters_off(model: nn.Module) -> Iterator[None]:
    """Let the model compute what it did before it was trained."""
    from peft.tuners.lora import LoraLayer

    layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
    for layer in layers:
        layer.set_scale(NAME, 0)
    try:
        yield
    finally:
        for layer in layers:
            layer.set_scale(NAME, 1)


def merged_state(model: nn.Module, full: Full, without: Collection[str] = ()) -> Iterator[tuple[str, Tensor]]:
    """Yield the model's tensors, without adapters: each adapted weight W as W + (alpha / rank) B A, in float32.

    Those named in `without` are left out, and not made whole.
    """
    for name, tensor in plain_state(model):
        layer, is_adapted, leaf = name.rpartition(".base_layer.")
        merged = f"{layer}.{leaf}" if is_adapted else name
        if merged in without or _is_adapter(name):
            continue
        if is_adapted and leaf == "weight":
            yield merged, full(tensor).float() + _change(model, layer, full)
        else:
            yield merged, full(tensor)


def _change(model: nn.Module, name: str, full: Full) -> Tensor:
    layer: Any = model.get_submodule(name)
    b, a = full(layer.lora_B[NAME].weight).float(), full(layer.lora_A[NAME].weight).float()
    return (b @ a) * float(layer.scaling[NAME])


def adapter_state(model: nn.Module, full: Full) -> Iterator[tuple[str, Tensor]]:
    """Yield the adapters' tensors under the names of peft's files."""
    for name, tensor in model.state_dict(keep_vars=True).items():
        if _is_adapter(name):
            yield PREFIX + name.replace(f".{NAME}.", "."), full(tensor)


def _is_adapter(name: str) -> bool:
    return ".lora_A." in name or ".lora_B." in name


def write_adapter(model: PreTrainedModel, tensors: Iterable[tuple[str, Tensor]], base: Path, folder: Path) -> None:
    """Write the adapters as peft and vLLM read them; `base` is the folder of the frozen model."""
    config = model.peft_config[NAME]
    config.base_model_name_or_path, config.inference_mode = str(base), True
    with writing(folder):
        config.save_pretrained(str(folder))
        save_file({name: tensor.contiguous() for name, tensor in tensors}, folder / WEIGHTS, metadata={"format": "pt"})
