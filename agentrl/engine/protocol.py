"""The Engine contract: tokens in, tokens out, and weights replaced under a version."""

from __future__ import annotations

from typing import Any, Protocol

from agentrl.types import Completion, Prompt, Sampling, Version, WeightManifest


class Engine(Protocol):
    """A sampler. There is one object per engine process; calls are coroutines with a deadline in seconds.

    Cancelling the coroutine of a call aborts the request in the engine. A call past its deadline raises DeadlineError,
    one that the engine cannot serve raises EngineRefusedError, and a dead engine raises EngineDiedError to every caller
    at once.
    """

    async def start(self, deadline_s: float) -> None:
        """Load the model and become ready."""

    async def generate(self, prompt: Prompt, sampling: Sampling, deadline_s: float) -> Completion:
        """Sample one completion. Its logprobs are those of the distribution sampled from."""

    async def score(self, ids: tuple[int, ...], deadline_s: float) -> tuple[float, ...]:
        """Return the logprobs at temperature 1 of ids[1:], each given all ids before it."""

    async def pause(self, deadline_s: float) -> None:
        """Stop sampling and keep the requests in flight. Idempotent."""

    async def resume(self, deadline_s: float) -> None:
        """Continue sampling; requests in flight are prefilled again. Idempotent."""

    async def sleep(self, deadline_s: float) -> None:
        """Free the accelerator's memory. An engine that cannot sleep raises EngineRefusedError."""

    async def wake(self, deadline_s: float) -> None:
        """Allocate memory for weights, which must be published again; `resume` allocates that of the caches."""

    async def init_transfer(self, info: dict[str, Any], deadline_s: float) -> None:
        """Connect to the sender of weights; `info` comes from the trainer side of the transfer backend."""

    async def start_update(self, deadline_s: float) -> None:
        """Begin an update; the engine must be paused."""

    async def load(self, bucket: dict[str, Any], deadline_s: float) -> None:
        """Load one bucket of weights, which `bucket` describes in the format of the transfer backend."""

    async def finish_update(self, manifest: WeightManifest, deadline_s: float) -> None:
        """End the update under `manifest.version`: clear caches and compare what arrived with the manifest.

        Raises WeightsError naming the first tensor that is missing, unknown or different. The engine must then be
        restarted, never resumed.
        """

    async def check(self, deadline_s: float) -> None:
        """Raise EngineDiedError if the engine is gone. Cheap, and allowed at any time."""

    async def version(self) -> Version | None:
        """Return the version served, None before the first publication."""

    async def close(self) -> None:
        """End the engine and every process it started. Idempotent."""
