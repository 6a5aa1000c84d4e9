"""vLLM plugin: transfer backends, a worker method, and the end of a worker with its parent process.

`register` is an entry point of the group `vllm.general_plugins`. Naming `WorkerReport` as the engine's
`worker_extension_cls` imports this module, which has the same effect where the entry point is not installed.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from functools import cache
from typing import Any

from agentrl.errors import WeightsError
from agentrl.weights.verify import Received, verify

BACKENDS = {
    "shm": ("agentrl_shm", "agentrl.weights.receiver", "ObservedSharedMemory"),
    "nccl": ("agentrl_nccl", "agentrl.weights.gpu", "ObservedNccl"),
    "ipc": ("agentrl_ipc", "agentrl.weights.gpu", "ObservedIpc"),
}


@cache
def register() -> None:
    """Register the transfer backends, and end this process when its parent ends. Idempotent."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    for name, module, class_name in BACKENDS.values():
        WeightTransferEngineFactory.register_engine(name, module, class_name)
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_end_with, args=(parent,), name="end-with-parent", daemon=True).start()


class WorkerReport:
    """A mixin of vLLM's worker, for `collective_rpc`: it verifies the last update, of weights or of an adapter."""

    weight_transfer_engine: Any
    model_runner: Any

    def verify_weights(self, promised: dict[str, str]) -> str:
        """Compare what this worker received with the promised digests by name; returns the fault, or ""."""
        return _fault(promised, self.weight_transfer_engine.observer.received())

    def observe_adapters(self) -> None:
        """Record the digests of the adapters that are loaded from now on. Idempotent."""
        from agentrl.weights.adapter import ObservedAdapter

        self.model_runner.lora_manager._lora_model_cls = ObservedAdapter

    def verify_adapter(self, promised: dict[str, str], number: int) -> str:
        """Compare the adapter with the id `number` with the promised digests; returns the fault, or ""."""
        from agentrl.weights.adapter import received

        return _fault(promised, received(self.model_runner.lora_manager._adapter_manager, number))


def _fault(promised: dict[str, str], received: Received) -> str:
    try:
        verify(promised, received)
    except WeightsError as error:
        return str(error)
    return ""


def _end_with(parent: Any) -> None:
    # A killed actor cannot end its engine, but the kernel closes the pipe on which `join` waits.
    parent.join()
    os._exit(1)


if multiprocessing.parent_process() is not None:
    register()
