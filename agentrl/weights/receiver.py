"""The engine's side of every transfer, inside vLLM's worker: it loads the tensors that arrive, and records them."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.layers.attention import is_deferred_attention_layer
from vllm.model_executor.model_loader.mtp_validation import disable_mtp_completeness_check
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

from agentrl.weights.digest import tensor_digest
from agentrl.weights.verify import Received


class Observer:
    """A stand-in for the model, whose `load_weights` records each tensor's digest and what was loaded.

    Make it before the reload begins, while tied layers still share their parameters.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self._load: Callable[..., set[str] | None] = model.load_weights  # type: ignore[assignment]
        self.parameters = {name for name, _ in model.named_parameters()}
        self.tied = _tied_layers(model)
        self.digests: list[tuple[str, str]] = []
        self.loaded: set[str] = set()
        self.stale: list[str] = []

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load tensors into the model and record them."""
        with disable_mtp_completeness_check():
            names: set[str] = self._load(self._observed(weights)) or set()
        self.loaded |= names
        return names

    def look_for_stale_layers(self) -> None:
        """Record the layers that would keep their old tensors; call it before the reload is finalised.

        vLLM itself only warns of them ("Failed to load weights").
        """
        for name, layer in self.model.named_modules():
            info = get_layerwise_info(layer)
            is_due = info.can_load() and info.load_numel == 0 and name not in self.tied
            has_parameters = next(layer.parameters(recurse=False), None) is not None
            if is_due and has_parameters and not is_deferred_attention_layer(layer):
                self.stale.append(name)

    def refresh_tied_layers(self) -> None:
        """Update tied layers; call it after the reload is finalised.

        On CPUs a tied lm_head multiplies by a packed copy of the weights, which vLLM's reload does not update.
        """
        for layer in self.tied.values():
            quant_method: Any = layer.quant_method
            quant_method.process_weights_after_loading(layer)

    def received(self) -> Received:
        """Return what the update brought."""
        return Received(self.digests, sorted(self.parameters - self.loaded), self.stale)

    def _observed(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in weights:
            self.digests.append((name, tensor_digest(tensor)))
            yield name, tensor


class Observed:
    """A mixin, before a transfer engine of vLLM: an `Observer` replaces the model during an update."""

    observer: Observer | None = None
    model: Any

    def start_weight_update(self) -> None:
        """Begin an update, observed."""
        observer = Observer(self.model)
        super().start_weight_update()  # type: ignore[misc]
        self.model = self.observer = observer

    def finish_weight_update(self) -> None:
        """End the update, and let tied layers take part in it."""
        assert self.observer is not None
        self.model = self.observer.model
        self.observer.look_for_stale_layers()
        super().finish_weight_update()  # type: ignore[misc]
        self.observer.refresh_tied_layers()


@dataclass
class SharedMemoryInit(WeightTransferInitInfo):  # type: ignore[misc]
    """No setup: buckets name their files."""


@dataclass
class SharedMemoryBucket(WeightTransferUpdateInfo):  # type: ignore[misc]
    """A bucket of `agentrl.weights.staging`."""

    path: str
    tensors: list[dict[str, Any]]


class SharedMemory(WeightTransferEngine[SharedMemoryInit, SharedMemoryBucket]):  # type: ignore[misc]
    """Loads buckets from files on this machine, without copying them first."""

    init_info_cls = SharedMemoryInit
    update_info_cls = SharedMemoryBucket

    def init_transfer_engine(self, init_info: SharedMemoryInit) -> None:
        """Do nothing."""

    def start_weight_update(self) -> None:
        """Prepare every layer for a reload."""
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load one bucket. The base class would synchronize with an accelerator, which a CPU machine does not have."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: SharedMemoryBucket) -> None:
        """Map the bucket's file and load its tensors, which keep the mapping alive until their layer is complete."""
        with Path(update_info.path).open("rb") as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self.model.load_weights((entry["name"], _tensor(memory, entry)) for entry in update_info.tensors)

    def finish_weight_update(self) -> None:
        """Process the layers that are still waiting, and put the kernels' tensors back."""
        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """Do nothing: there are no resources to free."""


class ObservedSharedMemory(Observed, SharedMemory):
    """The transfer on machines without GPUs."""


def _tensor(memory: mmap.mmap, entry: dict[str, Any]) -> torch.Tensor:
    shape, dtype = entry["shape"], getattr(torch, entry["dtype"])
    count = torch.Size(shape).numel()
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=entry["offset"]).view(shape)


def _tied_layers(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Return the layers all of whose own parameters belong to an earlier layer."""
    seen: set[int] = set()
    tied = {}
    for name, layer in model.named_modules():
        own = {id(parameter) for parameter in layer.parameters(recurse=False)}
        if own and own <= seen:
            tied[name] = layer
        seen |= own
    return tied
