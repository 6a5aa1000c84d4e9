"""Fakes of what vLLM's own transfer engines need of a GPU: a communicator, streams and handles of memory.

Everything else is vLLM's: its trainer engines, its packing and its workers' engines, on tensors in CPU memory. Memory
that has a handle is a file, so that the processes of several ranks can map it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
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


class Stream:
    def synchronize(self) -> None: ...


class FakeTorch:
    """torch, whose CUDA devices are the CPU; `visible` are their UUIDs, of which this process uses the first."""

    cuda: Any
    accelerator: Any

    def __init__(self, visible: Sequence[str]) -> None:
        self.cuda, self.accelerator, self._visible = self, self, visible

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
        return SimpleNamespace(uuid=self._visible[index])

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        yield


class Group:
    """An nccl group: what rank 0 broadcasts reaches every other rank; `destroy` ends calls that wait, with an error."""

    def __init__(self, world_size: int, gpus: Gpus) -> None:
        self.world_size, self.gpus = world_size, gpus
        self.ranks: list[int] = []
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
    """The GPUs that a process sees: the groups that it joined, and the memory behind handles, files in `folder`."""

    def __init__(self, folder: Path, visible: Sequence[str]) -> None:
        self.visible = visible
        self.groups: list[Group] = []
        self.sizes: list[int] = []
        """Bytes of the memory that was exported."""
        self.mapped: list[str] = []
        """The GPU of each handle that was mapped."""
        self.flips_bits = False
        self._folder = folder
        self._changed = threading.Condition()
        self._by_port: dict[int, Group] = {}

    def join(self, host: str, port: int, rank: int, world_size: int, device: object) -> Communicator:
        with self._changed:
            if port not in self._by_port:
                self._by_port[port] = Group(world_size, self)
                self.groups.append(self._by_port[port])
            group = self._by_port[port]
            assert world_size == group.world_size, "the ranks of a group agree about its size"
            assert rank not in group.ranks, f"rank {rank} joins twice"
            group.ranks.append(rank)
            self._changed.notify_all()
            # NCCL waits for all ranks. Here only the sender does: the workers of an engine join one after another.
            if rank == 0 and not self._changed.wait_for(lambda: len(group.ranks) == world_size, WAIT_S):
                raise RuntimeError(f"{len(group.ranks)} of {world_size} ranks have joined")
            return Communicator(group, rank)

    def export(self, tensor: torch.Tensor) -> tuple[object, tuple[Any, ...]]:
        """`reduce_tensor`: (function, arguments), the seventh of which is the index of the device."""
        owner, size = self.visible[0], tensor.nbytes
        file = self._folder / f"{owner}-{len(self.sizes)}"
        self.sizes.append(size)
        tensor.set_(_mapped(file, size))
        return None, (str(file), size, 2, 3, 4, 5, 0, owner)

    def rebuild(self, *args: Any) -> torch.Tensor:
        file, size, owner = args[0], args[1], args[7]
        assert self.visible[args[6]] == owner, "memory is mapped on the GPU on which it is"
        memory = _mapped(file, size)
        if self.flips_bits:
            memory[0] ^= 1
        self.mapped.append(owner)
        return memory


def _mapped(file: Path | str, size: int) -> torch.Tensor:
    return torch.from_file(str(file), shared=True, size=size, dtype=torch.uint8)


def installed(patch: pytest.MonkeyPatch, folder: Path, visible: Sequence[str] = ("GPU-0",)) -> Gpus:
    """Put the fakes where vLLM's transfer engines look."""
    gpus, fake = Gpus(folder, visible), FakeTorch(visible)
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
            self.register_parameter(_own(name), torch.nn.Parameter(torch.zeros(shape)))

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        loaded = set()
        for name, tensor in weights:
            self.held(name).copy_(tensor)
            loaded.add(_own(name))
        return loaded

    def held(self, name: str) -> torch.Tensor:
        """The value of a parameter."""
        return cast(torch.Tensor, getattr(self, _own(name)).data)


def _own(name: str) -> str:
    return name.replace(".", "_")


class WorkerEngine:
    """An engine with a worker of vLLM's on each of `devices`, which receives in a thread as it does in its process."""

    def __init__(self, backend: str, shapes: dict[str, torch.Size], devices: Sequence[int] = (0,)) -> None:
        kind = ObservedIpc if backend == "ipc" else ObservedNccl
        self.models = [Model(shapes) for _ in devices]
        self.workers: list[Any] = [
            kind(None, _config(rank, len(devices)), torch.device("cpu", device), self.models[rank])
            for rank, device in enumerate(devices)
        ]
        self.communicators: list[Communicator] = []
        self.calls: list[str] = []
        self.dies_at = 0
        """The call of `load` in which its process dies, counted from 1."""
        self.hangs_in = ""
        """The call that it does not answer."""
        self.blocks: threading.Event | None = None
        """Where set, the call that it does not answer blocks the event loop until then."""
        self._threads = ThreadPoolExecutor(len(devices))

    async def init_transfer(self, info: dict[str, Any], deadline_s: float) -> None:
        await self._called("init_transfer")
        for worker in self.workers:
            worker.init_transfer_engine(worker.init_info_cls(**info))
            if (group := getattr(worker, "model_update_group", None)) is not None:
                self.communicators.append(group)

    async def start_update(self, deadline_s: float) -> None:
        await self._called("start_update")
        for worker in self.workers:
            worker.start_weight_update()

    async def load(self, bucket: dict[str, Any], deadline_s: float) -> None:
        await self._called("load")
        if self.dies_at == self.calls.count("load"):
            raise EngineDiedError("its process died while it received weights")
        loop = asyncio.get_running_loop()
        infos = [worker.parse_update_info(bucket) for worker in self.workers]
        await asyncio.gather(
            *(
                loop.run_in_executor(self._threads, worker.receive_weights, info)
                for worker, info in zip(self.workers, infos, strict=True)
            )
        )

    async def finish_update(self, manifest: WeightManifest, deadline_s: float) -> None:
        await self._called("finish_update")
        for worker in self.workers:
            worker.finish_weight_update()
            verify({spec.name: spec.digest for spec in manifest.tensors}, worker.observer.received())

    def as_engine(self) -> Engine:
        return cast(Engine, self)

    async def _called(self, name: str) -> None:
        self.calls.append(name)
        if name == self.hangs_in:
            if self.blocks is not None:
                self.blocks.wait()
            await asyncio.Event().wait()


def _config(rank: int, world_size: int) -> Any:
    parallel = SimpleNamespace(data_parallel_index=0, world_size=world_size, rank=rank)
    return SimpleNamespace(parallel_config=parallel, model_config=None)
