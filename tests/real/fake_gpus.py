"""Fakes of what vLLM's own transfer engines need of a GPU: a communicator, streams and handles of memory.

Everything else is vLLM's: its trainer engines, its packing and its workers' engines, on tensors in CPU memory.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import torch
from vllm.distributed.weight_transfer import ipc_engine, nccl_common, nccl_engine, packed_tensor

from agentrl.engine.protocol import Engine
from agentrl.errors import EngineDiedError
from agentrl.types import WeightManifest
from agentrl.weights.gpu import ObservedIpc, ObservedNccl
from agentrl.weights.verify import verify

WAIT_S = 20.0
UUID = "GPU-0"


class Stream:
    def synchronize(self) -> None: ...


class FakeTorch:
    """torch, whose CUDA device is the CPU."""

    cuda: Any
    accelerator: Any

    def __init__(self) -> None:
        self.cuda, self.accelerator = self, self

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, *args: Any, **options: Any) -> torch.Tensor:
        return torch.empty(*args, **{**options, "device": "cpu"})

    def is_available(self) -> bool:
        return False

    def current_device_index(self) -> int:
        return 0

    def current_stream(self) -> Stream:
        return Stream()

    def synchronize(self) -> None: ...

    def ipc_collect(self) -> None: ...

    def get_device_properties(self, index: int) -> Any:
        return type("Properties", (), {"uuid": UUID})

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        yield


class Group:
    """An nccl group: what rank 0 broadcasts reaches every other rank; `destroy` ends calls that wait, with an error."""

    def __init__(self, world_size: int, gpus: Gpus) -> None:
        self.world_size, self.gpus = world_size, gpus
        self.queues: dict[int, queue.Queue[torch.Tensor]] = {rank: queue.Queue(1) for rank in range(1, world_size)}
        self.sizes: list[int] = []
        self.is_broken = threading.Event()


class Communicator:
    """A rank of a group, with the two methods of `PyNcclCommunicator` that vLLM calls."""

    def __init__(self, group: Group, rank: int) -> None:
        self.group, self.rank, self.is_destroyed = group, rank, False

    def broadcast(self, tensor: torch.Tensor, src: int, stream: object = None) -> None:
        if self.rank == src:
            self.group.sizes.append(tensor.nbytes)
            for each in self.group.queues.values():
                self._until(lambda each=each: each.put(tensor.clone(), timeout=0.01))  # type: ignore[misc]
        else:
            tensor.copy_(self._until(lambda: self.group.queues[self.rank].get(timeout=0.01)))
            if self.group.gpus.flips_bits:
                tensor[0] ^= 1

    def destroy(self) -> None:
        self.is_destroyed = True
        self.group.is_broken.set()

    def _until(self, call: Any) -> Any:
        for _ in range(int(WAIT_S / 0.01)):
            if self.group.is_broken.is_set():
                raise RuntimeError("NCCL error: the communicator was aborted")
            try:
                return call()
            except (queue.Full, queue.Empty):
                continue
        raise AssertionError("the broadcast hangs")


class Gpus:
    """The groups that were made, and the memory behind handles."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.memory: dict[int, torch.Tensor] = {}
        self.flips_bits = False
        self._lock = threading.Lock()
        self._by_port: dict[int, Group] = {}

    def join(self, host: str, port: int, rank: int, world_size: int, device: object) -> Communicator:
        with self._lock:
            if port not in self._by_port:
                self._by_port[port] = Group(world_size, self)
                self.groups.append(self._by_port[port])
            return Communicator(self._by_port[port], rank)

    def export(self, tensor: torch.Tensor) -> tuple[object, tuple[Any, ...]]:
        """`reduce_tensor`: (function, arguments), the seventh of which is the index of the device."""
        number = len(self.memory)
        self.memory[number] = tensor
        return None, (number, 1, 2, 3, 4, 5, 99, 7)

    def rebuild(self, *args: Any) -> torch.Tensor:
        assert args[6] == 0, "the receiver's own device"
        if self.flips_bits:
            self.memory[args[0]][0] ^= 1
        return self.memory[args[0]]


def installed(patch: pytest.MonkeyPatch) -> Gpus:
    """Put the fakes where vLLM's transfer engines look."""
    gpus, fake = Gpus(), FakeTorch()
    for module in (ipc_engine, nccl_common, nccl_engine, packed_tensor):
        patch.setattr(module, "torch", fake)
    patch.setattr(nccl_common, "stateless_init_process_group", gpus.join)
    patch.setattr(packed_tensor, "_get_streams", lambda device, count: tuple(Stream() for _ in range(count)))
    patch.setattr(packed_tensor, "reduce_tensor", gpus.export)
    patch.setattr("torch.multiprocessing.reductions.rebuild_cuda_tensor", gpus.rebuild)
    patch.setattr(nccl_engine.NCCLWeightTransferEngine, "start_weight_update", lambda self: None)
    patch.setattr(nccl_engine.NCCLWeightTransferEngine, "finish_weight_update", lambda self: None)
    patch.setattr(ipc_engine.IPCWeightTransferEngine, "start_weight_update", lambda self: None)
    close = lambda self: self._packed_importer.close()  # noqa: E731
    patch.setattr(ipc_engine.IPCWeightTransferEngine, "finish_weight_update", close)
    return gpus


class Model(torch.nn.Module):
    """A model whose parameters are loaded under their own names."""

    def __init__(self, shapes: dict[str, torch.Size]) -> None:
        super().__init__()
        self.shapes = shapes
        for name, shape in shapes.items():
            self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(torch.zeros(shape)))

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        loaded = set()
        for name, tensor in weights:
            own = name.replace(".", "_")
            getattr(self, own).data.copy_(tensor)
            loaded.add(own)
        return loaded


class WorkerEngine:
    """An engine with one worker of vLLM's: `load` receives in a thread, as an EngineCore does in its process."""

    def __init__(self, backend: str, shapes: dict[str, torch.Size], rank: int = 0) -> None:
        kind = ObservedIpc if backend == "ipc" else ObservedNccl
        parallel = type("Parallel", (), {"data_parallel_index": 0, "world_size": 1, "rank": rank})
        config = type("Config", (), {"parallel_config": parallel, "model_config": None})
        self.model = Model(shapes)
        self.worker: Any = kind(None, config, torch.device("cpu", 0), self.model)
        self.communicators: list[Communicator] = []
        self.calls: list[str] = []
        self.dies_at = 0
        """The call of `load` in which its process dies, counted from 1."""

    async def init_transfer(self, info: dict[str, Any], deadline_s: float) -> None:
        self.calls.append("init_transfer")
        self.worker.init_transfer_engine(self.worker.init_info_cls(**info))
        if (group := getattr(self.worker, "model_update_group", None)) is not None:
            self.communicators.append(group)

    async def start_update(self, deadline_s: float) -> None:
        self.calls.append("start_update")
        self.worker.start_weight_update()

    async def load(self, bucket: dict[str, Any], deadline_s: float) -> None:
        self.calls.append("load")
        if self.dies_at == self.calls.count("load"):
            raise EngineDiedError("its process died while it received weights")
        info = self.worker.parse_update_info(bucket)
        await asyncio.to_thread(self.worker.receive_weights, info)

    async def finish_update(self, manifest: WeightManifest, deadline_s: float) -> None:
        self.calls.append("finish_update")
        self.worker.finish_weight_update()
        received = self.worker.observer.received()
        verify({spec.name: spec.digest for spec in manifest.tensors}, received)

    def as_engine(self) -> Engine:
        return cast(Engine, self)
