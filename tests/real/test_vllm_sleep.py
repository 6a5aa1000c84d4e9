"""An engine that shares its GPU: what vLLM is asked to do, in which order. Its own class checks each call's arguments.

No GPU is needed: vLLM is replaced by a record of the calls.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import torch

from agentrl.config.schema import LoraSection
from agentrl.engine.vllm.engine import VllmEngine
from agentrl.engine.vllm.settings import VllmSpec
from agentrl.errors import EngineRefusedError
from agentrl.types import Prompt, Sampling, Version
from agentrl.weights.publisher import Publisher
from agentrl.weights.staging import StagedBucket, stage, stage_adapter
from agentrl.weights.transfer import StagedTransfer

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]
PROMPT, SAMPLING = Prompt((1, 2)), Sampling(max_tokens=1)
SLEEP = {2: "sleep(level=2, mode=keep)", 1: "sleep(level=1, mode=keep)"}
DEADLINE_S = 60.0
WEIGHTS = [
    "pause_generation(mode=keep, clear_cache=True)",
    "start_weight_update()",
    "update_weights()",
    "finish_weight_update()",
    "collective_rpc(verify_weights)",
    "update_weight_version()",
]
ADAPTER = [
    "pause_generation(mode=abort, clear_cache=True)",
    "collective_rpc(observe_adapters)",
    "add_lora()",
    "collective_rpc(verify_adapter)",
    "update_weight_version()",
]
RESUME = "resume_generation()"


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Import vLLM before a deadline counts."""
    import vllm.distributed.weight_transfer.base
    import vllm.lora.request
    import vllm.v1.engine.async_llm  # noqa: F401


class Llm:
    """Records calls as vLLM's AsyncLLM takes them; `faults` are those that its worker finds in an update."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.faults = [""]

    def __getattr__(self, name: str) -> Any:
        from vllm.v1.engine.async_llm import AsyncLLM

        signature = inspect.signature(getattr(AsyncLLM, name))

        async def call(*args: Any, **options: Any) -> Any:
            given = signature.bind(self, *args, **options).arguments
            given.pop("self")
            shown = [given["method"]] if name == "collective_rpc" else []
            shown += [f"{key}={given[key]}" for key in ("level", "mode", "tags", "clear_cache") if key in given]
            self.calls.append(f"{name}({', '.join(shown)})")
            return self.faults if shown and shown[0].startswith("verify") else []

        return call

    def said(self) -> list[str]:
        """The calls since the last time."""
        said, self.calls = self.calls, []
        return said


class Gpu:
    """A GPU that an engine and a learner share, and the publisher of the learner's weights."""

    def __init__(self, folder: Path, publish: str) -> None:
        self._folder, self._publish = folder, publish
        lora = LoraSection(rank=4, publish="adapter") if publish == "adapter" else LoraSection()
        self.engine, self.llm = VllmEngine(VllmSpec("model", device="cuda", lora=lora)), Llm()
        self.engine._process._llm = self.llm  # type: ignore[assignment]
        self.engine._process._death = asyncio.get_running_loop().create_future()
        self.replaced: list[str] = []
        self.publisher = Publisher(self, StagedTransfer(self._staged), DEADLINE_S, shares_gpus=True)  # type: ignore[arg-type]

    async def _staged(self, _version: Version, _deadline_s: float) -> AsyncGenerator[StagedBucket]:
        weights = [("a", torch.ones(4))]
        if self._publish == "adapter":
            yield stage_adapter(weights, self._folder, lambda _: None)
        else:
            for bucket in stage(weights, self._folder, 1 << 20):
                yield bucket

    def serving(self) -> dict[int, VllmEngine]:
        return {0: self.engine}

    def replace(self, _lost: Any, why: str) -> None:
        self.replaced.append(why)

    async def sleep(self, deadline_s: float) -> None:
        await self.engine.sleep(deadline_s)

    async def wake(self, deadline_s: float) -> None:
        await self.engine.wake(deadline_s)


@pytest.mark.parametrize(("publish", "level", "update"), [("merged", 2, WEIGHTS), ("adapter", 1, ADAPTER)])
async def test_memory_for_caches_comes_back_after_the_weights(
    tmp_path: Path, publish: str, level: int, update: list[str]
) -> None:
    gpu = Gpu(tmp_path, publish)
    await gpu.engine.sleep(1.0)
    assert gpu.llm.said() == [SLEEP[level]]
    for number in range(2):
        await gpu.publisher.publish(Version(0, number))
        assert gpu.llm.said() == ["wake_up(tags=['weights'])", *update, "wake_up(tags=['kv_cache'])", RESUME]
        assert await gpu.engine.version() == Version(0, number)
        await gpu.publisher.yield_gpus()
        assert gpu.llm.said() == [SLEEP[level]]
        assert await gpu.engine.version() is None
        with pytest.raises(EngineRefusedError, match="no published version"):
            await gpu.engine.generate(PROMPT, SAMPLING, 1.0)
    await gpu.publisher.publish(Version(0, 2))
    gpu.llm.said()
    await gpu.publisher.publish(Version(0, 3))
    assert gpu.llm.said() == [*update, RESUME], "it did not sleep in between"
    assert not gpu.replaced


async def test_nothing_is_sampled_before_the_new_weights_are_there(tmp_path: Path) -> None:
    gpu = Gpu(tmp_path, "merged")
    await gpu.engine.sleep(1.0)
    await gpu.engine.wake(1.0)
    for ask in (gpu.engine.generate(PROMPT, SAMPLING, 1.0), gpu.engine.score((1, 2), 1.0)):
        with pytest.raises(EngineRefusedError, match="no published version"):
            await ask
    assert gpu.llm.said() == [SLEEP[2], "wake_up(tags=['weights'])"]


@pytest.mark.parametrize("publish", ["merged", "adapter"])
async def test_an_engine_whose_update_fails_takes_no_memory_for_caches(tmp_path: Path, publish: str) -> None:
    gpu = Gpu(tmp_path, publish)
    await gpu.engine.sleep(1.0)
    gpu.llm.faults = ["tensor 'a' differs"]
    await gpu.publisher.publish(Version(0, 0))
    assert len(gpu.replaced) == 1
    assert "tensor 'a' differs" in gpu.replaced[0]
    assert gpu.llm.calls[-1].startswith("collective_rpc(verify")
    with pytest.raises(EngineRefusedError, match="must be restarted, never resumed"):
        await gpu.engine.resume(1.0)
    assert "wake_up(tags=['kv_cache'])" not in gpu.llm.said()


async def test_an_engine_on_a_cpu_refuses_to_sleep(tmp_path: Path) -> None:
    engine = VllmEngine(VllmSpec(str(tmp_path)))
    for ask in (engine.sleep(1.0), engine.wake(1.0)):
        with pytest.raises(EngineRefusedError, match="vLLM on a CPU cannot"):
            await ask
