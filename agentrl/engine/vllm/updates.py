"""What an engine receives: all weights of the model, or an adapter. Both are verified in vLLM's workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentrl.engine.vllm.process import VllmProcess
from agentrl.types import WeightManifest

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest


class WeightUpdates:
    """Weights that replace those of the model, bucket by bucket.

    A pause keeps the requests in flight, which continue under the new weights.
    """

    aborts = False
    sleep_level = 2  # weights are dropped

    def __init__(self, process: VllmProcess) -> None:
        self._process = process

    async def start(self, deadline_s: float) -> None:
        """Begin an update."""
        await self._process.call("starting an update", lambda llm: llm.start_weight_update(), deadline_s)

    async def load(self, bucket: dict[str, Any], deadline_s: float) -> None:
        """Load one bucket."""
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        request = WeightTransferUpdateRequest(update_info=bucket)
        await self._process.call("loading weights", lambda llm: llm.update_weights(request), deadline_s)

    async def finish(self, manifest: WeightManifest, deadline_s: float) -> list[str]:
        """End the update; returns the fault that each worker found, "" for none."""
        await self._process.call("finishing an update", lambda llm: llm.finish_weight_update(), deadline_s)
        return await self._process.call_workers("verifying weights", deadline_s, "verify_weights", _digests(manifest))

    def request(self) -> LoRARequest | None:
        """Return None: requests are sampled by the model itself."""
        return None


class AdapterUpdates:
    """Adapters of one model, each under a new id, so that no KV cache outlives it.

    A pause aborts the requests in flight, because the adapter of a request is chosen when it is sent.
    """

    aborts = True
    sleep_level = 1  # weights are kept in CPU memory

    def __init__(self, process: VllmProcess) -> None:
        self._process = process
        self._newest, self._name = 0, ""  # as vLLM knows it

    async def start(self, deadline_s: float) -> None:
        """Begin an update."""
        await self._process.call_workers("starting an update", deadline_s, "observe_adapters")

    async def load(self, bucket: dict[str, Any], deadline_s: float) -> None:
        """Load an adapter under a new id; vLLM forgets the one before the last."""
        from vllm.lora.request import LoRARequest

        self._newest += 1
        request = LoRARequest(bucket["adapter"], self._newest, bucket["adapter"])
        await self._process.call("loading an adapter", lambda llm: llm.add_lora(request), deadline_s)

    async def finish(self, manifest: WeightManifest, deadline_s: float) -> list[str]:
        """Return the fault that each worker found, "" for none; the adapter is named after its version."""
        self._name, arguments = f"{manifest.version}#{self._newest}", (_digests(manifest), self._newest)
        return await self._process.call_workers("verifying an adapter", deadline_s, "verify_adapter", *arguments)

    def request(self) -> LoRARequest | None:
        """Return vLLM's form of the newest adapter."""
        from vllm.lora.request import LoRARequest

        return LoRARequest(self._name, self._newest, "loaded")


def _digests(manifest: WeightManifest) -> dict[str, str]:
    return {spec.name: spec.digest for spec in manifest.tensors}
