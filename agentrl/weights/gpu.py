"""Transfers between GPUs inside vLLM's workers: vLLM's own engines, observed. `nccl` is not yet verified on GPUs."""

from __future__ import annotations

from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferEngine
from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine, NCCLWeightTransferInitInfo

from agentrl.weights.receiver import Observed


class ObservedNccl(Observed, NCCLWeightTransferEngine):  # type: ignore[misc]
    """Broadcast from the learner's first rank to every worker."""

    def init_transfer_engine(self, init_info: NCCLWeightTransferInitInfo) -> None:
        """Join a new group; the communicator of the last one is released."""
        self.shutdown()
        super().init_transfer_engine(init_info)


class ObservedIpc(Observed, IPCWeightTransferEngine):  # type: ignore[misc]
    """The learner's tensors, mapped into the workers on the same GPU."""
