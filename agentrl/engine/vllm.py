"""vLLM as an Engine: one AsyncLLM in this process, its EngineCore in a child.

The engine samples nothing before the first publication, so every token has a version. Importing this module does not
import vllm: `start` first sets the environment that vllm reads when it is imported.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from agentrl.config.schema import ALL_LINEAR, EngineSection, LoraSection
from agentrl.errors import DeadlineError, EngineDiedError, EngineError, EngineRefusedError, WeightsError
from agentrl.types import Completion, FinishReason, Prompt, Sampling, Version, VersionSpan, WeightManifest

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.lora.request import LoRARequest
    from vllm.outputs import RequestOutput
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

T = TypeVar("T")

_WORKER_EXTENSION = "agentrl.weights.plugin.WorkerReport"
_CLOSE_S = 10.0
_ABANDON_S = 60.0


@dataclass(frozen=True, slots=True)
class VllmSpec:
    """How to start one vLLM engine. `engine` is resolved for this machine; `transfer` is shm, nccl or ipc.

    If `lora.publish` is "adapter", the engine keeps the weights of `model`, a folder, and adapters are published to it.
    vLLM leaves sockets and rendezvous files behind in `scratch`, which its owner removes ("": where vLLM puts them).
    """

    model: str
    engine: EngineSection = field(default_factory=EngineSection)
    dtype: str = "bfloat16"
    max_model_len: int = 1024
    seed: int = 0
    transfer: str = "shm"
    device: str = "cpu"
    scratch: str = ""
    lora: LoraSection = field(default_factory=LoraSection)


def environment(spec: VllmSpec, cores: Sequence[int]) -> dict[str, str]:
    """Return the variables to set before vllm is imported; `cores` are those that this process may use."""
    variables = {
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if spec.scratch:
        variables["VLLM_RPC_BASE_PATH"] = variables["TMPDIR"] = spec.scratch
    if spec.transfer == "ipc":
        # CUDA handles travel to the EngineCore, a child of this process, as pickles.
        variables["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    if Path(spec.model).is_dir():
        variables["HF_HUB_OFFLINE"] = "1"
    if spec.device == "cpu":
        threads = min(spec.engine.threads or len(cores), len(cores))
        variables["OMP_NUM_THREADS"] = str(threads)
        if spec.engine.tensor_parallel == 1:
            # The model then runs inside the EngineCore: one process less to start and to talk to.
            variables["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return variables


class VllmEngine:
    """One vLLM engine (`agentrl.engine.protocol.Engine`) under deadlines, which samples published weights only."""

    def __init__(self, spec: VllmSpec) -> None:
        self.spec, self._has_adapters = spec, spec.lora.publish == "adapter"
        self._llm: AsyncLLM | None = None
        self._children: list[BaseProcess] = []
        self._death: asyncio.Future[None] | None = None
        self._version: Version | None = None
        self._fault = ""
        self._is_running = asyncio.Event()
        self._is_running.set()
        self._is_updating = False
        self._pauses = 0
        self._adapter = 0  # vLLM's id of the newest adapter; each has a new one, so that no KV cache outlives it
        self._numbers = itertools.count()

    # ---------------------------------------------------------------------------------------------- life

    async def start(self, deadline_s: float) -> None:
        """Load the model; the engine then waits for its first publication."""
        os.environ.update(environment(self.spec, sorted(os.sched_getaffinity(0))))
        if self.spec.scratch:
            await asyncio.to_thread(Path(self.spec.scratch).mkdir, 0o700, parents=True, exist_ok=True)
        before = _cores()
        building = asyncio.create_task(asyncio.to_thread(self._build))
        await asyncio.wait({building}, timeout=deadline_s)
        if not building.done():
            await _abandon(building, before)
            raise DeadlineError(f"the engine of {self.spec.model} did not start within {deadline_s:g} s")
        self._children = list(_cores() - before)
        if (error := building.exception()) is not None:
            raise EngineError(f"vLLM could not start with {self.spec.model}: {error}") from error
        self._death = asyncio.get_running_loop().create_future()
        for child in self._children:
            asyncio.get_running_loop().add_reader(child.sentinel, self._on_death)

    async def close(self) -> None:
        """End the engine and its processes; kill those that still run after 10 s."""
        self._on_death()
        if self._llm is not None:
            llm, self._llm = self._llm, None
            await asyncio.to_thread(llm.shutdown, _CLOSE_S)
        await asyncio.to_thread(_kill, self._children)

    def _build(self) -> None:
        from vllm.v1.engine.async_llm import AsyncLLM

        # Not returned: a frame of this thread that vLLM keeps alive would hold the engine until the process ends.
        self._llm = AsyncLLM.from_engine_args(_engine_args(self.spec))

    def pids(self) -> list[int]:
        """Return the ids of this process and of the engine's children."""
        return [os.getpid(), *(child.pid for child in self._children if child.pid is not None)]

    # ---------------------------------------------------------------------------------------------- sampling

    async def generate(self, prompt: Prompt, sampling: Sampling, deadline_s: float) -> Completion:
        """Sample one completion.

        The publication of an adapter aborts it, and it continues under the new adapter; a stop string on both sides of
        that point goes unnoticed.
        """
        ends_at, done = time.monotonic() + deadline_s, Completion((), (), (), "abort")
        while True:
            pauses = self._pauses
            params = _sampling_params(_rest(sampling, len(done.ids)))
            output = await self._request(prompt.ids + done.ids, params, ends_at - time.monotonic())
            done = _joined(done, _completion(output))
            is_cut = self._has_adapters and done.finish_reason == "abort" and pauses != self._pauses
            if not is_cut or len(done.ids) == sampling.max_tokens:
                return done

    async def score(self, ids: tuple[int, ...], deadline_s: float) -> tuple[float, ...]:
        """Return the logprobs at temperature 1 of ids[1:]. vLLM never reads the prefix cache for prompt logprobs."""
        if len(ids) < 2:
            return ()
        output = await self._request(ids, _scoring_params(), deadline_s)
        logprobs: Any = output.prompt_logprobs
        return _chosen(ids[1:], logprobs[1:])

    async def _request(self, ids: tuple[int, ...], params: SamplingParams, deadline_s: float) -> RequestOutput:
        self._raise_if_dead("sampling")
        if self._version is None and not self._is_updating:  # during an update vLLM lets it wait
            raise EngineRefusedError("the engine holds no published version yet; publish weights before sampling")

        async def last_output(llm: AsyncLLM) -> RequestOutput:
            lora = None
            if self._has_adapters:
                await self._is_running.wait()  # the adapter of a request is chosen when it is sent
                lora = self._lora_request()
            return await _last_output(llm, next(self._numbers), ids, params, lora)

        return await self._call("sampling", last_output, deadline_s)

    def _lora_request(self) -> LoRARequest:
        """Return vLLM's form of the newest adapter, named after its version."""
        from vllm.lora.request import LoRARequest

        return LoRARequest(f"{self._version}#{self._adapter}", self._adapter, "loaded")

    # ---------------------------------------------------------------------------------------------- pauses

    async def pause(self, deadline_s: float) -> None:
        """Stop sampling and clear every cache; the requests in flight continue after `resume`."""
        self._is_running.clear()
        self._pauses += 1
        mode: Any = "abort" if self._has_adapters else "keep"
        await self._call("pausing", lambda llm: llm.pause_generation(mode=mode, clear_cache=True), deadline_s)

    async def resume(self, deadline_s: float) -> None:
        """Continue; refused after an update that failed."""
        self._refuse_if_faulty()
        await self._call("resuming", lambda llm: llm.resume_generation(), deadline_s)
        self._is_running.set()

    async def sleep(self, deadline_s: float) -> None:
        """Free the GPU's memory, weights included: those under an adapter move to CPU memory."""
        self._refuse_on_cpu("sleep")
        level = 1 if self._has_adapters else 2
        await self._call("going to sleep", lambda llm: llm.sleep(level=level, mode="keep"), deadline_s)
        self._version = None
        self._is_running.clear()

    async def wake(self, deadline_s: float) -> None:
        """Allocate the memory again and stay paused until weights are published."""
        self._refuse_on_cpu("wake")
        await self._call("waking", lambda llm: llm.wake_up(), deadline_s)

    # ---------------------------------------------------------------------------------------------- weights

    async def init_transfer(self, info: dict[str, Any], deadline_s: float) -> None:
        """Connect to the sender of weights; `info` goes to the transfer backend as it is."""
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest

        request = WeightTransferInitRequest(init_info=info)
        await self._call("connecting to the sender", lambda llm: llm.init_weight_transfer_engine(request), deadline_s)

    async def start_update(self, deadline_s: float) -> None:
        """Begin an update; the engine then serves nothing until `finish_update` has succeeded."""
        if self._is_running.is_set():
            raise EngineRefusedError("an update needs a paused engine; call pause first")
        self._refuse_if_faulty()
        with self._faulty_unless_done():
            if self._has_adapters:
                await self._call("starting an update", lambda llm: llm.collective_rpc("observe_adapters"), deadline_s)
            else:
                await self._call("starting an update", lambda llm: llm.start_weight_update(), deadline_s)

    async def load(self, bucket: dict[str, Any], deadline_s: float) -> None:
        """Load one bucket, or an adapter."""
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        with self._faulty_unless_done():
            if self._has_adapters:
                await self._load_adapter(bucket["adapter"], deadline_s)
            else:
                request = WeightTransferUpdateRequest(update_info=bucket)
                await self._call("loading weights", lambda llm: llm.update_weights(request), deadline_s)

    async def _load_adapter(self, folder: str, deadline_s: float) -> None:
        """Load an adapter under a new id; vLLM forgets the one before the last."""
        from vllm.lora.request import LoRARequest

        self._adapter += 1
        request = LoRARequest(folder, self._adapter, folder)
        await self._call("loading an adapter", lambda llm: llm.add_lora(request), deadline_s)

    async def finish_update(self, manifest: WeightManifest, deadline_s: float) -> None:
        """Verify what arrived, inside the workers, and serve it under `manifest.version`."""
        arguments: tuple[Any, ...]
        promised = {spec.name: spec.digest for spec in manifest.tensors}
        with self._faulty_unless_done():
            verify, arguments = "verify_adapter", (promised, self._adapter)
            if not self._has_adapters:
                verify, arguments = "verify_weights", (promised,)
                await self._call("finishing an update", lambda llm: llm.finish_weight_update(), deadline_s)
            faults = await self._call(
                "verifying weights", lambda llm: llm.collective_rpc(verify, args=arguments), deadline_s
            )
            if fault := next(filter(None, faults), ""):
                raise WeightsError(f"version {manifest.version} did not arrive whole: {fault}; restart the engine")
            label = str(manifest.version)
            await self._call("naming a version", lambda llm: llm.update_weight_version(label), deadline_s)
        self._version, self._is_updating = manifest.version, False

    async def check(self, deadline_s: float) -> None:
        """Raise EngineDiedError if the engine's process is gone."""
        await self._call("checking", lambda llm: llm.is_paused(), deadline_s)

    async def version(self) -> Version | None:
        """Return the version served, None before the first publication."""
        return self._version

    # ---------------------------------------------------------------------------------------------- guards

    async def _call(self, what: str, call: Callable[[AsyncLLM], Awaitable[T]], deadline_s: float) -> T:
        """Await `call(llm)` until the deadline, the engine's death or a cancellation, which aborts the request."""
        if self._llm is None or self._death is None:
            self._raise_if_dead(what)
            raise EngineRefusedError(f"{what}: the engine was not started")
        task: asyncio.Future[T] = asyncio.ensure_future(call(self._llm))
        try:
            waited_for: list[asyncio.Future[Any]] = [task, self._death]
            await asyncio.wait(waited_for, timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()
        if not task.done() or self._death.done():
            await asyncio.wait({task}, timeout=1.0)
        self._raise_if_dead(what)
        if not task.done() or task.cancelled():
            raise DeadlineError(f"{what} took longer than {deadline_s:g} s")
        return _result(what, task)

    def _raise_if_dead(self, what: str) -> None:
        if self._death is not None and self._death.done():
            raise EngineDiedError(f"{what}: the engine process of {self.spec.model} is gone; restart the engine")

    def _on_death(self) -> None:
        if self._death is None or self._death.done():
            return
        self._death.set_result(None)
        for child in self._children:
            asyncio.get_running_loop().remove_reader(child.sentinel)

    @contextmanager
    def _faulty_unless_done(self) -> Iterator[None]:
        self._version, self._fault = None, "an update did not complete"
        self._is_updating = True
        try:
            yield
            self._fault = ""
        finally:
            self._is_updating = not self._fault

    def _refuse_if_faulty(self) -> None:
        if self._fault:
            raise EngineRefusedError(f"{self._fault}: the engine must be restarted, never resumed")

    def _refuse_on_cpu(self, what: str) -> None:
        if self.spec.device == "cpu":
            raise EngineRefusedError(f"vLLM on a CPU cannot {what}")


async def _abandon(building: asyncio.Task[None], before: set[BaseProcess]) -> None:
    """End the thread that builds an engine, by killing the child that it starts."""
    ends_at = time.monotonic() + _ABANDON_S
    while not building.done() and time.monotonic() < ends_at:
        await asyncio.wait({building}, timeout=0.1)
        _kill(_cores() - before)
    if building.done():
        building.exception()  # retrieved, so that asyncio does not log it


def _engine_args(spec: VllmSpec) -> AsyncEngineArgs:
    from vllm.config.weight_transfer import WeightTransferConfig
    from vllm.engine.arg_utils import AsyncEngineArgs

    engine = spec.engine
    options: dict[str, Any] = {}
    if spec.device == "cpu" or engine.kv_cache_gib:
        options["kv_cache_memory_bytes"] = int((engine.kv_cache_gib or _kv_cache_gib()) * (1 << 30))
    elif engine.gpu_memory_utilization:
        options["gpu_memory_utilization"] = engine.gpu_memory_utilization
    if spec.device == "cpu":
        # A seeded prompt that is cut in two kills vLLM's CPU worker ("CPU Generator does not use offset").
        options["enable_chunked_prefill"] = False
        options["max_num_batched_tokens"] = max(8192, spec.max_model_len)
    if spec.lora.publish == "adapter":
        options |= _lora_options(spec.lora, Path(spec.model))
    return AsyncEngineArgs(
        model=spec.model,
        dtype=spec.dtype,
        max_model_len=spec.max_model_len,
        max_num_seqs=engine.max_num_seqs,
        tensor_parallel_size=engine.tensor_parallel,
        enforce_eager=bool(engine.enforce_eager),
        enable_prefix_caching=engine.prefix_caching,
        enable_sleep_mode=spec.device != "cpu",
        seed=spec.seed,
        logprobs_mode="processed_logprobs",
        worker_extension_cls=_WORKER_EXTENSION,
        weight_transfer_config=WeightTransferConfig(backend=f"agentrl_{spec.transfer}"),
        disable_log_stats=True,
        **options,
    )


def _lora_options(lora: LoraSection, model: Path) -> dict[str, Any]:
    from vllm.config.lora import MaxLoRARanks

    return {
        "enable_lora": True,
        "max_lora_rank": min(rank for rank in get_args(MaxLoRARanks) if rank >= lora.rank),
        # A request that is sent while a pause begins is sampled after it, by the adapter that it was sent with.
        "max_loras": 2,
        # By default vLLM adapts the head too, and then cannot compute the logprobs of a prompt beside other requests.
        "lora_target_modules": sorted(_linear_layers(model) if lora.targets == ALL_LINEAR else lora.targets.split(",")),
    }


def _linear_layers(model: Path) -> set[str]:
    """Return the names of the layers in the model's blocks, which are numbered, that have a matrix."""
    from safetensors import safe_open

    found: set[str] = set()
    for path in model.glob("*.safetensors"):
        with safe_open(path, "numpy") as file:
            names = [name for name in file.keys() if len(file.get_slice(name).get_shape()) == 2]  # noqa: SIM118
        found |= {match[1] for name in names if (match := re.search(r"\.\d+\..*?(\w+)\.weight$", name))}
    return found


def _kv_cache_gib() -> float:
    """Return an eighth of the machine's memory, between 1 and 8 GiB; pages are allocated when first used."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return min(8.0, max(1.0, total / 8))


async def _last_output(
    llm: AsyncLLM, number: int, ids: tuple[int, ...], params: SamplingParams, lora: LoRARequest | None
) -> RequestOutput:
    from vllm.inputs.engine import tokens_input

    prompt = tokens_input(list(ids))
    outputs = [output async for output in llm.generate(prompt, params, str(number), lora_request=lora)]
    return outputs[-1]


def _completion(output: RequestOutput) -> Completion:
    sampled = output.outputs[0]
    ids = tuple(sampled.token_ids)
    logprobs: Any = sampled.logprobs or ()
    spans = tuple(VersionSpan(Version.parse(s.version), s.start, s.end) for s in sampled.weight_versions or ())
    if output.lora_request is not None:
        version = Version.parse(output.lora_request.lora_name.partition("#")[0])
        spans = (VersionSpan(version, 0, len(ids)),) if ids else ()
    return Completion(ids, _chosen(ids, logprobs), spans, _finish_reason(sampled.finish_reason))


def _rest(sampling: Sampling, done: int) -> Sampling:
    """Return the sampling of what follows `done` tokens, with random numbers of its own."""
    if not done:
        return sampling
    seed = None if sampling.seed is None else (sampling.seed + done) % (1 << 63)
    return replace(sampling, max_tokens=sampling.max_tokens - done, seed=seed)


def _joined(one: Completion, other: Completion) -> Completion:
    """Return a completion and its continuation as one."""
    shift = len(one.ids)
    spans = tuple(VersionSpan(span.version, span.start + shift, span.end + shift) for span in other.versions)
    versions = (*one.versions, *spans)
    return Completion(one.ids + other.ids, one.logprobs + other.logprobs, versions, other.finish_reason)


def _sampling_params(sampling: Sampling) -> SamplingParams:
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    return SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        seed=sampling.seed,
        stop_token_ids=list(sampling.stop_token_ids),
        ignore_eos=True,  # the caller decides what ends a turn, with `stop_token_ids`
        stop=list(sampling.stop),
        logprobs=0,
        flat_logprobs=True,
        detokenize=bool(sampling.stop),
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_clone=True,
    )


def _scoring_params() -> SamplingParams:
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    return SamplingParams(
        max_tokens=1,
        prompt_logprobs=0,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_clone=True,
    )


def _chosen(ids: tuple[int, ...], logprobs: Sequence[Any]) -> tuple[float, ...]:
    return tuple(float(choices[token].logprob) for token, choices in zip(ids, logprobs, strict=True))


def _finish_reason(reason: str | None) -> FinishReason:
    return cast(FinishReason, reason) if reason in ("stop", "length") else "abort"


def _result(what: str, task: asyncio.Future[T]) -> T:
    from vllm.exceptions import VLLMClientError
    from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

    try:
        return task.result()
    except EngineDeadError as error:
        raise EngineDiedError(f"{what}: the engine process is gone; restart the engine") from error
    except (VLLMClientError, ValueError) as error:
        raise EngineRefusedError(f"{what}: {error}") from error
    except EngineGenerateError as error:
        raise EngineError(f"{what}: {error.__cause__ or error}") from error


def _cores() -> set[BaseProcess]:
    """Return the EngineCores among the children of this process."""
    return {child for child in multiprocessing.active_children() if child.name.startswith("EngineCore")}


def _kill(children: Collection[BaseProcess]) -> None:
    for child in children:
        child.kill()
    for child in children:
        child.join(_CLOSE_S)
