"""The engine's side of a published adapter, inside vLLM's worker: its tensors as they were read, and where they are."""

from __future__ import annotations

from typing import Any

import torch
from vllm.lora.lora_model import LoRAModel
from vllm.model_executor.models.utils import is_pp_missing_parameter

from agentrl.weights.digest import tensor_digest
from agentrl.weights.verify import Received


class ObservedAdapter(LoRAModel):  # type: ignore[misc]
    """vLLM's adapter, with the digests of the tensors that it was made from."""

    digests: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_lora_tensors(
        cls, lora_model_id: int, tensors: dict[str, torch.Tensor], *args: Any, **kwargs: Any
    ) -> ObservedAdapter:
        """Make an adapter from tensors by name."""
        digests = tuple((name, tensor_digest(tensor)) for name, tensor in tensors.items())
        adapter: ObservedAdapter = super().from_lora_tensors(lora_model_id, tensors, *args, **kwargs)
        adapter.digests = digests
        return adapter


def received(manager: Any, number: int) -> Received:
    """Return what vLLM's `LoRAModelManager` holds under the id `number`: nothing, unless it is active.

    Layers of other pipeline stages are not missing here: their own workers have them.
    """
    adapter = manager.get_adapter(number)
    if adapter is None or number not in manager.lora_index_to_id:
        return Received()
    unwrapped = adapter.loras.keys() - manager.modules.keys()
    unloaded = [name for name in sorted(unwrapped) if not is_pp_missing_parameter(name, manager.model)]
    return Received(adapter.digests, unloaded)
