"""The trainer's side of transfers between GPUs: vLLM's own trainer engines, with a client of ours that has deadlines.

Not yet verified on a GPU. Every rank of the learner makes a `GpuSender` and calls `send`; rank 0 drives the engines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch

from agentrl.engine.protocol import Engine
from agentrl.errors import DeadlineError, WeightsError
from agentrl.types import TensorSpec, Version, WeightManifest
from agentrl.weights.staging import spec_of

if TYPE_CHECKING:
    from vllm.distributed.weight_transfer.base import ParamMeta

Weights = Callable[[], Iterable[tuple[str, torch.Tensor]]]


class SyncClient:
    """vLLM's `VLLMWeightSyncClient` over paused engines: blocking calls into the loop that owns them, with deadlines.

    Called from threads other than the loop's. `finish_weight_update` verifies what arrived against `manifest()`.
    """

    def __init__(
        self, engines: Sequence[Engine], loop: asyncio.AbstractEventLoop, deadline_s: float, workers_per_engine: int = 1
    ) -> None:
        self._engines, self._loop, self._deadline_s = engines, loop, deadline_s
        self._workers_per_engine = workers_per_engine
        self.manifest: Callable[[], WeightManifest] | None = None

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Connect the engines to the sender. For nccl the workers of all engines are numbered one after another."""
        self._all(
            "connecting to the sender",
            lambda index, engine: engine.init_transfer(self._info(init_info, index), self._deadline_s),
        )

    def start_weight_update(self) -> None:
        """Begin an update on every engine."""
        self._all("starting an update", lambda _, engine: engine.start_update(self._deadline_s))

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Let every engine receive the weights that are being sent."""
        self._all("receiving weights", lambda _, engine: engine.load(update_info, self._deadline_s))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """End the update on every engine, under the version of the manifest."""
        if self.manifest is None:
            raise WeightsError(
                f"no manifest for the update {weight_version or ''}: set SyncClient.manifest before sending"
            )
        manifest = self.manifest()
        self._all("finishing an update", lambda _, engine: engine.finish_update(manifest, self._deadline_s))

    def _info(self, info: dict[str, Any], index: int) -> dict[str, Any]:
        if "rank_offset" not in info:
            return info
        return info | {"rank_offset": info["rank_offset"] + index * self._workers_per_engine}

    def _all(self, what: str, call: Callable[[int, Engine], Coroutine[Any, Any, None]]) -> None:
        async def together() -> None:
            await asyncio.gather(*(call(index, engine) for index, engine in enumerate(self._engines)))

        future = asyncio.run_coroutine_threadsafe(together(), self._loop)
        try:
            future.result(self._deadline_s)
        except TimeoutError:
            future.cancel()
            raise DeadlineError(
                f"{what}: {len(self._engines)} engines did not answer in {self._deadline_s:g} s"
            ) from None


@dataclass
class Source:
    """vLLM's `WeightSource`: the learner's weights by checkpoint names, gathered once, one at a time.

    `shapes` yields the same without data. An iteration records what the engines verify.
    """

    weights: Weights
    shapes: Weights
    sent: list[TensorSpec] = field(default_factory=list)

    def metadata(self) -> list[ParamMeta]:
        """Return name, dtype and shape of every tensor."""
        from vllm.distributed.weight_transfer.base import ParamMeta

        return [ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in self.shapes()]

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        self.sent = []
        for name, tensor in self.weights():
            self.sent.append(spec_of(name, tensor))
            yield name, tensor

    def held_names(self) -> None:
        """Return None: every rank yields all tensors."""

    def manifest(self, version: Version) -> WeightManifest:
        """Return the manifest against which engines verify, of the last iteration."""
        return WeightManifest(version, tuple(self.sent))


@dataclass(frozen=True)
class Rendezvous:
    """The meeting point of an nccl group; `world_size` counts the sender and every worker of every engine."""

    address: str
    port: int
    world_size: int


class GpuSender:
    """Sends the learner's weights to paused engines; made once, on every rank of the learner."""

    def __init__(
        self,
        backend: Literal["nccl", "ipc"],
        source: Source,
        client: SyncClient,
        rank: int,
        rendezvous: Rendezvous | None = None,
    ) -> None:
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

        self._source, self._client = source, client
        self._engine = WeightTransferTrainerFactory.trainer_init(
            _init_info(backend, rank, rendezvous), client=client, source=source
        )

    def send(self, version: Version) -> None:
        """Update every engine, from start_update to finish_update; collective over the ranks of the learner."""
        self._client.manifest = partial(self._source.manifest, version)
        self._engine.send_weights()

    def close(self) -> None:
        """Leave the group."""
        self._engine.shutdown()


def _init_info(backend: Literal["nccl", "ipc"], rank: int, rendezvous: Rendezvous | None) -> Any:
    if backend == "ipc":
        from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

        return IPCTrainerInitInfo(rank=rank, packed=True)
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    if rendezvous is None:
        raise WeightsError("nccl needs a rendezvous: address, port and world size")
    return NCCLTrainerInitInfo(
        rank=rank,
        master_address=rendezvous.address,
        master_port=rendezvous.port,
        world_size=rendezvous.world_size,
    )
