"""vLLM on GPUs: sampling, adapters, sleep and wake, against the learner's logprobs of the same weights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean

import torch
from transformers import AutoModelForCausalLM

from agentrl.algorithms.sample import plain_sequence
from agentrl.config.schema import EngineSection, LoraSection
from agentrl.engine.vllm.engine import VllmEngine
from agentrl.engine.vllm.settings import VllmSpec
from agentrl.learner.batch import build_trees
from agentrl.learner.lora import adapter_state, add_adapters, write_adapter
from agentrl.learner.micro_batch import by_member, pack
from agentrl.learner.model import PackedModel, load_model
from agentrl.types import Completion, Prompt, SampleId, Sampling, Version, WeightManifest
from agentrl.weights.canary import LogprobCanary
from agentrl.weights.staging import StagedBucket, stage_adapter, stage_folder
from verification.check import BoundError, Setting, within
from verification.models import small

START_S, CALL_S = 240.0, 100.0
SHARE = 0.3
"""Of a GPU's memory, for an engine."""
BUCKET = 64 << 10
CANARY = tuple(range(20, 84))
PROMPTS, TOKENS = 16, 48
MEAN = 0.02
"""Bound of the mean difference between the sampled logprobs and the learner's, in nats, in bfloat16."""
FREED = 0.8
"""Share of an engine's memory that sleep must give back at least."""
GIB = 2**30


def sampling(setting: Setting) -> str:
    """Sample, and compare the logprobs of every token with the learner's; the engine stays within its memory."""
    return asyncio.run(_sampling(setting))


def tensor_parallel(setting: Setting) -> str:
    """Do the same with an engine on two GPUs."""
    return asyncio.run(_sampling(setting, tensor_parallel=2))


def pipeline_parallel(setting: Setting) -> str:
    """Do the same with an engine whose layers are divided between two GPUs."""
    return asyncio.run(_sampling(setting, pipeline_parallel=2))


async def _sampling(setting: Setting, tensor_parallel: int = 1, pipeline_parallel: int = 1) -> str:
    dtype, before = _dtype(setting), used_bytes(setting.device)
    model = small(setting.folder / "model", dtype)
    async with served(setting, model, tensor_parallel=tensor_parallel, pipeline_parallel=pipeline_parallel) as engine:
        used, share = used_bytes(setting.device) - before, _total_bytes(setting.device) * SHARE
        within("the engine's memory, of its share,", used / share, 1.1)
        await publish_folder(engine, model, Version(0, 0), setting.folder)
        learner = load_model(model, getattr(torch, dtype)).to(setting.device)
        completions = await _completions(engine)
        said = await _compared(engine, learner, completions)
    return f"{said}; {used / GIB:.1f} GiB of a share of {share / GIB:.1f}"


def adapter(setting: Setting) -> str:
    """Publish two adapters one after the other, and compare the logprobs with the learner's under each."""
    return asyncio.run(_adapter(setting))


async def _adapter(setting: Setting) -> str:
    dtype, lora = _dtype(setting), LoraSection(rank=8, alpha=16.0, publish="adapter")
    model = small(setting.folder / "model", dtype)
    adapted = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="agentrl_trees")
    add_adapters(adapted, lora)
    said = []
    async with served(setting, model, lora=lora) as engine:
        for number in range(2):
            _move(adapted, seed=number)
            learner = PackedModel(adapted, getattr(torch, dtype))
            await publish_adapter(engine, learner, model, Version(0, number), setting.folder)
            learner.to(setting.device)
            said.append(await _compared(engine, learner, await _completions(engine)))
            learner.cpu()
    return f"first adapter: {said[0]}; second: {said[1]}"


def sleep(setting: Setting) -> str:
    """Let an engine sleep and wake: memory is given back, and it samples as before when weights are published again."""
    return asyncio.run(_sleep(setting))


async def _sleep(setting: Setting) -> str:
    model = small(setting.folder / "model", "bfloat16")
    before = used_bytes(setting.device)
    async with served(setting, model) as engine:
        await publish_folder(engine, model, Version(0, 0), setting.folder)
        first, awake = await _completions(engine), used_bytes(setting.device) - before
        await engine.pause(CALL_S)
        await engine.sleep(CALL_S)
        asleep = used_bytes(setting.device) - before
        await engine.wake(CALL_S)
        woken = used_bytes(setting.device) - before
        await publish_folder(engine, model, Version(0, 1), setting.folder)
        again = await _completions(engine)
    within("the memory asleep, of that awake,", asleep / awake, 1 - FREED)
    different = sum(one.ids != other.ids for one, other in zip(first, again, strict=True))
    within("completions that differ after waking", different, 0)
    return (
        f"awake {awake / GIB:.2f} GiB, asleep {asleep / GIB:.2f}, awake again {woken / GIB:.2f}; "
        f"the same {PROMPTS} completions afterwards"
    )


# --------------------------------------------------------------------------------------------------------------
# An engine, and weights for it.


@asynccontextmanager
async def served(
    setting: Setting,
    model: Path,
    *,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    lora: LoraSection | None = None,
) -> AsyncIterator[VllmEngine]:
    """Start an engine as a run does, and close it."""
    on_cpu = setting.device == "cpu"
    section = EngineSection(
        max_num_seqs=64,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        gpu_memory_utilization=0.0 if on_cpu else SHARE,
        kv_cache_gib=0.25 if on_cpu else 0.0,
        enforce_eager=on_cpu,
    )
    spec = VllmSpec(str(model), section, _dtype(setting), max_model_len=512, device=setting.device)
    engine = VllmEngine(replace(spec, scratch=str(setting.folder / "s"), lora=lora or LoraSection()))
    try:
        await engine.start(START_S)
        yield engine
    finally:
        await engine.close()


async def publish_folder(engine: VllmEngine, model: Path, version: Version, folder: Path) -> None:
    """Let the engine serve the weights of a folder."""

    async def load() -> list[StagedBucket]:
        loaded = []
        async for bucket in stage_folder(model, folder, BUCKET, version, CALL_S):
            await engine.load(bucket.load, CALL_S)
            bucket.discard()
            loaded.append(bucket)
        return loaded

    await _publish(engine, load, version)


async def publish_adapter(
    engine: VllmEngine, learner: PackedModel, model: Path, version: Version, folder: Path
) -> None:
    """Let the engine serve the adapters of a model."""

    async def load() -> list[StagedBucket]:
        adapters = adapter_state(learner.model, lambda tensor: tensor.detach())
        named = [(name, tensor.to(learner.compute)) for name, tensor in adapters]
        bucket = stage_adapter(named, folder, partial(write_adapter, learner.model, named, model))
        await engine.load(bucket.load, CALL_S)
        bucket.discard()
        return [bucket]

    await _publish(engine, load, version)


async def _publish(engine: VllmEngine, load: Callable[[], Awaitable[list[StagedBucket]]], version: Version) -> None:
    await engine.pause(CALL_S)
    await engine.start_update(CALL_S)
    tensors = [tensor for bucket in await load() for tensor in bucket.tensors]
    await engine.finish_update(WeightManifest(version, tuple(tensors)), CALL_S)
    await engine.resume(CALL_S)


def _dtype(setting: Setting) -> str:
    """Return bfloat16 on GPUs. On a CPU, vLLM may use instructions for it that the CPU lacks."""
    return "bfloat16" if setting.device == "cuda" else "float32"


def _move(adapted: torch.nn.Module, seed: int) -> None:
    """Change every adapter, by numbers that bfloat16 holds."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data = (0.1 * torch.randn(parameter.shape, generator=generator)).bfloat16().float()


# --------------------------------------------------------------------------------------------------------------
# What it samples, and what the learner makes of it.


async def _completions(engine: VllmEngine) -> list[Completion]:
    return await asyncio.gather(
        *(
            engine.generate(Prompt((1, 20 + seed, 30)), Sampling(TOKENS, temperature=1.0, seed=seed), CALL_S)
            for seed in range(PROMPTS)
        )
    )


async def _compared(engine: VllmEngine, learner: PackedModel, completions: Sequence[Completion]) -> str:
    """Compare what was sampled with the learner's logprobs, and the canary's text too, which is not sampled."""
    rows = [[1, 20 + seed, 30, *completion.ids] for seed, completion in enumerate(completions)]
    expected = logprobs(learner, [*rows, list(CANARY)])
    differences = [
        abs(one - other)
        for completion, row in zip(completions, expected[:-1], strict=True)
        for one, other in zip(completion.logprobs, row[2:], strict=True)
    ]
    if not differences:
        raise BoundError("nothing was sampled")
    average = within("the mean difference of a sampled logprob", mean(differences), MEAN)
    dtype = str(learner.compute).removeprefix("torch.")
    canary = LogprobCanary(CANARY, dtype).check(await engine.score(CANARY, CALL_S), expected[-1])
    return (
        f"{len(differences)} sampled tokens, logprobs differ from the learner's by {average:.1e} on average (bound "
        f"{MEAN:g}), at most {max(differences):.1e}; canary {canary:.1e}"
    )


def logprobs(model: PackedModel, rows: Sequence[Sequence[int]]) -> list[list[float]]:
    """Return the learner's logprobs of ids[1:] of each row."""
    batch = [plain_sequence(SampleId(number, 0), row) for number, row in enumerate(rows)]
    device = model.head_weight.device
    micro_batch = pack(batch, build_trees(batch, range(len(batch)))).to(device, model.compute)
    with torch.no_grad():
        found = dict(by_member(micro_batch.members, model(micro_batch)))
    return [found[number].tolist() for number in range(len(rows))]


def used_bytes(device: str) -> int:
    """Return the memory of the first GPU that all processes use."""
    if device == "cpu":
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free


def _total_bytes(device: str) -> int:
    return torch.cuda.mem_get_info()[1] if device == "cuda" else GIB
