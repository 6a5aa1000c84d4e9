"""The trainer's side of transfers between GPUs: vLLM's own trainer engines, with a client of ours that has deadlines.

Every rank of the learner makes a `GpuSender` and calls `send`; rank 0 drives the engines. `nccl`, and several ranks,
are not yet verified on GPUs.
"""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch

from agentrl.engine.protocol import Engine
from agentrl.errors import AgentRLError, Caught, DeadlineError, WeightsError, catch
from agentrl.types import TensorSpec, Version, WeightManifest
from agentrl.weights.staging import spec_of

if TYPE_CHECKING:
    from vllm.distributed.weight_transfer.base import ParamMeta

GRACE_S = 5.0
OF_THE_GPU = (torch.OutOfMemoryError, torch.AcceleratorError)
"""Errors of the rank's own GPU, unless an engine has failed: a broken group has other ones."""

Weights = Callable[[], Iterable[tuple[str, torch.Tensor]]]
EngineCall = Callable[[int, Engine, float], Coroutine[Any, Any, None]]
"""A call of an engine, by its index, within so many seconds."""


class SyncClient:
    """vLLM's `VLLMWeightSyncClient` over paused engines: blocking calls into the loop that owns them, with deadlines.

    Called from threads other than the loop's. `finish_weight_update` verifies what arrived against `manifest()`.

    The first failure is kept in `error`, not raised, and the engines are asked nothing more: vLLM's sender goes on
    through the collectives in which the other ranks of the learner wait for it. `abort` is called, because a sender
    that waits for engines in a broadcast would wait for ever. All calls of an update share a deadline, since `begin`.
    """

    def __init__(
        self, engines: Sequence[Engine], loop: asyncio.AbstractEventLoop, deadline_s: float, workers_per_engine: int = 1
    ) -> None:
        self._engines, self._loop = engines, loop
        self._workers_per_engine = workers_per_engine
        self.begin(deadline_s)
        self.abort: Callable[[], None] = lambda: None
        self.manifest: Callable[[], WeightManifest] | None = None
        self.error: BaseException | None = None

    def begin(self, deadline_s: float) -> None:
        """Begin an update that must end in so many seconds."""
        self._deadline_s, self._ends_at = deadline_s, time.monotonic() + deadline_s

    @property
    def left_s(self) -> float:
        """The seconds that are left of the update."""
        return max(0.0, self._ends_at - time.monotonic())

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Connect the engines to the sender. For nccl the workers of all engines are numbered one after another."""
        self._all(
            "connecting to the sender",
            lambda index, engine, left_s: engine.init_transfer(self._info(init_info, index), left_s),
        )

    def start_weight_update(self) -> None:
        """Begin an update on every engine."""
        self._all("starting an update", lambda _, engine, left_s: engine.start_update(left_s))

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Let every engine receive the weights that are being sent."""
        self._all("receiving weights", lambda _, engine, left_s: engine.load(update_info, left_s))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """End the update on every engine, under the version of the manifest."""
        if self.manifest is None:
            raise WeightsError(
                f"no manifest for the update {weight_version or ''}: set SyncClient.manifest before sending"
            )
        manifest = self.manifest()
        self._all("finishing an update", lambda _, engine, left_s: engine.finish_update(manifest, left_s))

    def _info(self, info: dict[str, Any], index: int) -> dict[str, Any]:
        if "rank_offset" not in info:
            return info
        return info | {"rank_offset": info["rank_offset"] + index * self._workers_per_engine}

    def _all(self, what: str, call: EngineCall) -> None:
        if self.error is None:
            self.error = self._outcome(what, call)
        if self.error is not None:
            self.abort()

    def _outcome(self, what: str, call: EngineCall) -> BaseException | None:
        late = DeadlineError(f"{what}: {len(self._engines)} engines did not answer in {self._deadline_s:g} s")
        left_s = self.left_s

        async def together() -> None:
            async with asyncio.timeout(left_s):
                await asyncio.gather(*(call(index, engine, left_s) for index, engine in enumerate(self._engines)))

        answers = asyncio.run_coroutine_threadsafe(together(), self._loop)
        try:
            error = answers.exception(left_s + GRACE_S)
        except TimeoutError:  # the loop itself is blocked
            answers.cancel()
            return late
        return late if isinstance(error, TimeoutError) else error


@dataclass
class Source:
    """vLLM's `WeightSource`: the learner's weights by checkpoint names, gathered once, one at a time.

    `shapes` yields the same without data. After `begin` one iteration goes over the weights, and records what the
    engines verify. `error` is what the learner's own part of it raised.
    """

    weights: Weights
    shapes: Weights
    sent: list[TensorSpec] = field(default_factory=list)
    error: BaseException | None = None
    _rest: Iterator[tuple[str, torch.Tensor]] = field(default=iter(()), init=False)

    def metadata(self) -> list[ParamMeta]:
        """Return name, dtype and shape of every tensor."""
        from vllm.distributed.weight_transfer.base import ParamMeta

        return [ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in self.shapes()]

    def begin(self) -> None:
        """Begin a pass over the weights; nothing is gathered yet."""
        self.sent, self.error, self._rest = [], None, self._gathered()

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in self._rest:
            self.sent.append(spec_of(name, tensor))
            yield name, tensor

    def _gathered(self) -> Iterator[tuple[str, torch.Tensor]]:
        weights = iter(self.weights())
        while (one := catch(next, weights, None)).value is not None:
            yield one.value
        if one.error is not None:
            self.error = one.error
            raise one.error

    def drain(self) -> None:
        """Gather the rest of a pass that was given up: the other ranks of the learner gather all tensors."""
        deque(self._rest, maxlen=0)

    def held_names(self) -> None:
        """Return None: every rank yields all tensors."""

    def manifest(self, version: Version) -> WeightManifest:
        """Return the manifest against which engines verify, of the last iteration."""
        return WeightManifest(version, tuple(self.sent))


@dataclass(frozen=True)
class Route:
    """How weights travel: vLLM's backend, and the number of receiving workers of each engine."""

    backend: Literal["nccl", "ipc"]
    workers_per_engine: int


class GpuSender:
    """Sends the learner's weights to paused engines; made once, on every rank of the learner.

    It connects when the engines are not those of the last call, and after a send that failed. `address` is that of rank
    0, `free_port` finds a port there.
    """

    def __init__(
        self, route: Route, source: Source, rank: int, address: str, free_port: Callable[[], int], bucket_bytes: int
    ) -> None:
        self._route, self._source, self._rank = route, source, rank
        self._address, self._free_port, self._bucket_bytes = address, free_port, bucket_bytes
        self._engine: Any = None
        self._client: SyncClient | None = None
        self._receivers: Sequence[object] = ()
        self._has_ended = threading.Event()
        # A tensor that is larger than a bucket gets one to itself.
        warnings.filterwarnings("ignore", "Tensor '.*' has size .* exceeds buffer_size_bytes", UserWarning)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="engine calls", daemon=True).start()

    def send(self, version: Version, engines: Sequence[Engine], receivers: Sequence[object], deadline_s: float) -> None:
        """Update every engine, from start_update to finish_update; collective over the ranks of the learner.

        `receivers` identify the processes of the engines. Raises WeightsError, on rank 0 alone, for what failed between
        it and the engines. Any other error is the learner's, after which its ranks cannot go on together.
        """
        if receivers != self._receivers:
            self.close()
            self._client, self._receivers = self._new_client(engines, deadline_s), receivers
        assert self._client is not None
        client = self._client
        client.manifest = partial(self._source.manifest, version)
        client.begin(deadline_s)
        self._source.begin()
        sent = catch(self._transfer, client, len(engines))
        if (error := client.error or sent.error) is not None:
            self.close()
            self._source.drain()
            if self._source.error or (client.error is None and (self._rank > 0 or isinstance(error, OF_THE_GPU))):
                raise self._source.error or error
            raise WeightsError(_said(error)) from error

    def close(self) -> None:
        """Leave the group. Idempotent."""
        if self._engine is not None:
            self._engine.shutdown()
        self._engine = self._client = None
        self._receivers = ()

    def _transfer(self, client: SyncClient, engines: int) -> None:
        if self._engine is None:
            self._engine = self._connected(client, engines)
        self._engine.send_weights()

    def _new_client(self, engines: Sequence[Engine], deadline_s: float) -> SyncClient:
        client = SyncClient(engines, self._loop, deadline_s, self._route.workers_per_engine)
        client.abort = self._abort
        return client

    def _connected(self, client: SyncClient, engines: int) -> Any:
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

        info = self._init_info(1 + self._route.workers_per_engine * engines)
        connect = partial(WeightTransferTrainerFactory.trainer_init, info, client=client, source=self._source)
        return self._joined(connect, client) if self._joins else connect()

    @property
    def _joins(self) -> bool:
        """Whether this rank joins a group with the engines, as rank 0 does for nccl."""
        return self._route.backend == "nccl" and self._rank == 0

    def _joined(self, connect: Callable[[], Any], client: SyncClient) -> Any:
        """Connect in a thread of its own: a group waits for all of its members, for minutes or for ever.

        Once an engine has failed or the time is up, the thread is left behind, and what it may still join is left.
        """
        connecting: Future[Caught] = Future()
        has_ended = self._has_ended = threading.Event()

        def run() -> None:
            made = catch(connect)
            try:
                connecting.set_result(made)
            except InvalidStateError:  # given up
                if made.value is not None:
                    made.value.shutdown()
            has_ended.set()

        threading.Thread(target=run, name="connecting to engines", daemon=True).start()
        has_ended.wait(client.left_s + 2 * GRACE_S)
        if connecting.cancel():
            raise client.error or WeightsError("connecting to the engines took too long")
        made = connecting.result()
        if made.error is not None:
            raise made.error
        return made.value

    def _init_info(self, world_size: int) -> Any:
        if self._route.backend == "ipc":
            from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

            # Its buffer holds whole tensors, such as an embedding of more than a GiB.
            largest = max((tensor.nbytes for _, tensor in self._source.shapes()), default=1)
            size = max(self._bucket_bytes, largest)
            return IPCTrainerInitInfo(rank=self._rank, packed=True, packed_buffer_size_bytes=size)
        from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

        return NCCLTrainerInitInfo(
            rank=self._rank,
            master_address=self._address,
            master_port=self._free_port(),
            world_size=world_size,
            packed_buffer_size_bytes=self._bucket_bytes,
        )

    def _abort(self) -> None:
        self._has_ended.set()
        group = getattr(self._engine, "model_update_group", None)
        if group is not None:
            group.destroy()  # ncclCommAbort, which ends what the communicator is doing


def _said(error: BaseException) -> str:
    return str(error) if isinstance(error, AgentRLError) else f"{type(error).__name__}: {error}"
