"""The Engine contract on vLLM: sampling, pauses, and weights under a version.

The engine samples nothing before the first publication, so every token has a version.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from agentrl.engine.vllm.process import VllmProcess
from agentrl.engine.vllm.sampling import (
    chosen,
    completion_of,
    joined,
    last_output,
    rest,
    sampling_params,
    scoring_params,
)
from agentrl.engine.vllm.settings import VllmSpec
from agentrl.engine.vllm.updates import AdapterUpdates, WeightUpdates
from agentrl.errors import EngineRefusedError, WeightsError
from agentrl.types import Completion, Prompt, Sampling, Version, WeightManifest

if TYPE_CHECKING:
    from vllm.outputs import RequestOutput
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM


class VllmEngine:
    """One vLLM engine (`agentrl.engine.protocol.Engine`) under deadlines, which samples published weights only."""

    def __init__(self, spec: VllmSpec) -> None:
        self._is_on_cpu = spec.device == "cpu"
        self._process = VllmProcess(spec)
        self._call = self._process.call
        self._updates: AdapterUpdates | WeightUpdates = (
            AdapterUpdates(self._process) if spec.lora.publish == "adapter" else WeightUpdates(self._process)
        )
        self._version: Version | None = None
        self._fault = ""
        self._is_running = asyncio.Event()
        self._is_running.set()
        self._is_updating = False
        self._lacks_cache = False
        self._pauses = 0
        self._numbers = count()

    async def start(self, deadline_s: float) -> None:
        """Load the model; the engine then waits for its first publication."""
        await self._process.start(deadline_s)

    async def close(self) -> None:
        """End the engine and its processes; kill those that still run after 10 s."""
        await self._process.close()

    def pids(self) -> list[int]:
        """Return the ids of this process and of the engine's children."""
        return self._process.pids()

    async def check(self, deadline_s: float) -> None:
        """Raise EngineDiedError if the engine's process is gone."""
        await self._call("checking", lambda llm: llm.is_paused(), deadline_s)

    # ---------------------------------------------------------------------------------------------- sampling

    async def generate(self, prompt: Prompt, sampling: Sampling, deadline_s: float) -> Completion:
        """Sample one completion.

        The publication of an adapter aborts it, and it continues under the new adapter; a stop string on both sides of
        that point goes unnoticed.
        """
        ends_at, done = time.monotonic() + deadline_s, Completion((), (), (), "abort")
        while True:
            pauses = self._pauses
            params = sampling_params(rest(sampling, len(done.ids)))
            output = await self._request(prompt.ids + done.ids, params, ends_at - time.monotonic())
            done = joined(done, completion_of(output))
            is_cut = self._updates.aborts and done.finish_reason == "abort" and pauses != self._pauses
            if not is_cut or len(done.ids) == sampling.max_tokens:
                return done

    async def score(self, ids: tuple[int, ...], deadline_s: float) -> tuple[float, ...]:
        """Return the logprobs at temperature 1 of ids[1:]. vLLM never reads the prefix cache for prompt logprobs."""
        if len(ids) < 2:
            return ()
        output = await self._request(ids, scoring_params(), deadline_s)
        logprobs: Any = output.prompt_logprobs
        return chosen(ids[1:], logprobs[1:])

    async def _request(self, ids: tuple[int, ...], params: SamplingParams, deadline_s: float) -> RequestOutput:
        self._process.raise_if_dead("sampling")
        if self._version is None and not self._is_updating:  # during an update vLLM lets it wait
            raise EngineRefusedError("the engine holds no published version yet; publish weights before sampling")

        async def sampled(llm: AsyncLLM) -> RequestOutput:
            if self._updates.aborts:
                await self._is_running.wait()  # the adapter of a request is chosen when it is sent
            return await last_output(llm, next(self._numbers), ids, params, self._updates.request())

        return await self._call("sampling", sampled, deadline_s)

    # ---------------------------------------------------------------------------------------------- pauses

    async def pause(self, deadline_s: float) -> None:
        """Stop sampling and clear every cache; the requests in flight continue after `resume`."""
        self._is_running.clear()
        self._pauses += 1
        mode: Any = "abort" if self._updates.aborts else "keep"
        await self._call("pausing", lambda llm: llm.pause_generation(mode=mode, clear_cache=True), deadline_s)

    async def resume(self, deadline_s: float) -> None:
        """Continue, with caches after a sleep; refused after an update that failed."""
        self._refuse_if_faulty()
        if self._lacks_cache:
            await self._call("waking", lambda llm: llm.wake_up(["kv_cache"]), deadline_s)
            self._lacks_cache = False
        await self._call("resuming", lambda llm: llm.resume_generation(), deadline_s)
        self._is_running.set()

    async def sleep(self, deadline_s: float) -> None:
        """Free the GPU's memory, weights included: those under an adapter move to CPU memory."""
        self._refuse_on_cpu("sleep")
        level = self._updates.sleep_level
        await self._call("going to sleep", lambda llm: llm.sleep(level=level, mode="keep"), deadline_s)
        self._version, self._lacks_cache = None, True
        self._is_running.clear()

    async def wake(self, deadline_s: float) -> None:
        """Allocate memory for weights; vLLM stays paused while its caches sleep."""
        self._refuse_on_cpu("wake")
        await self._call("waking", lambda llm: llm.wake_up(["weights"]), deadline_s)

    def _refuse_on_cpu(self, what: str) -> None:
        if self._is_on_cpu:
            raise EngineRefusedError(f"vLLM on a CPU cannot {what}")

    # ---------------------------------------------------------------------------------------------- weights

    async def version(self) -> Version | None:
        """Return the version served, None before the first publication."""
        return self._version

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
            await self._updates.start(deadline_s)

    async def load(self, bucket: dict[str, Any], deadline_s: float) -> None:
        """Load one bucket, or an adapter."""
        with self._faulty_unless_done():
            await self._updates.load(bucket, deadline_s)

    async def finish_update(self, manifest: WeightManifest, deadline_s: float) -> None:
        """Verify what arrived, inside the workers, and serve it under `manifest.version`."""
        with self._faulty_unless_done():
            faults = await self._updates.finish(manifest, deadline_s)
            if fault := next(filter(None, faults), ""):
                raise WeightsError(f"version {manifest.version} did not arrive whole: {fault}; restart the engine")
            label = str(manifest.version)
            await self._call("naming a version", lambda llm: llm.update_weight_version(label), deadline_s)
        self._version, self._is_updating = manifest.version, False

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
