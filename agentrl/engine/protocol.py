"""The Engine contract: tokens in, tokens out, and weights replaced under a version."""

from __future__ import annotations

from typing import Any, Protocol

from agentrl.types import Capabilities, Completion, Prompt, Sampling, Version, WeightManifest


class Engine(Protocol):
    """What samples. One object per engine process; every call is a coroutine with a deadline in seconds.

    Cancelling the coroutine of a call aborts the request in the engine. A call past its deadline raises DeadlineError;
    a dead engine raises EngineDiedError to every caller at once; a call outside `capabilities` EngineRefusedError.
    """

    async def start(self, deadline_s: float) -> Capabilities:
        """Load the model and become ready; returns what this engine can do."""

    async def generate(self, prompt: Prompt, sampling: Sampling, deadline_s: float) -> Completion:
        """Sample one completion. Its logprobs are those of the distribution sampled from."""

    async def score(self, ids: tuple[int, ...], deadline_s: float) -> tuple[float, ...]:
        """Logprobs at temperature 1 of ids[1:], each given all before it: length len(ids) - 1."""

    async def pause(self, deadline_s: float) -> None:
        """Stop sampling and keep the requests in flight. Idempotent."""

    async def resume(self, deadline_s: float) -> None:
        """Go on sampling; requests in flight are prefilled again. Idempotent."""

    async def sleep(self, deadline_s: float) -> None:
        """Give the accelerator's memory back."""

    async def wake(self, deadline_s: float) -> None:
        """Take the memory again; the weights must be published anew."""

    async def init_transfer(self, info: dict[str, Any], deadline_s: float) -> None:
        """Meet the sender of weights: `info` is what the transfer backend's trainer side asks for."""

    async def start_update(self, deadline_s: float) -> None:
        """Begin an update; the engine must be paused."""

    async def load(self, bucket: dict[str, Any], deadline_s: float) -> None:
        """Receive one bucket of weights; `bucket` is the backend's description of it."""

    async def finish_update(self, manifest: WeightManifest, deadline_s: float) -> None:
        """End the update under `manifest.version`: caches are cleared and what arrived is compared with the manifest.

        Raises WeightsError naming the first tensor that is missing, unknown or different; the engine must then be
        restarted, never resumed.
        """

    async def check(self, deadline_s: float) -> None:
        """Raise EngineDiedError when the engine is gone; cheap, allowed at any time."""

    async def version(self) -> Version | None:
        """The version served, None before the first publication."""

    async def close(self) -> None:
        """End the engine and every process it started. Idempotent."""
