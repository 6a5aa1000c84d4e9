"""A real vLLM engine on a tiny float32 model, with a trainer's side that knows every version it ever published."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM

from agentrl.config.schema import EngineSection
from agentrl.engine.protocol import Engine
from agentrl.engine.vllm.engine import VllmEngine
from agentrl.engine.vllm.settings import VllmSpec
from agentrl.types import Prompt, Version, WeightManifest
from agentrl.weights.canary import LogprobCanary
from agentrl.weights.publisher import Publisher, PublishTimings
from agentrl.weights.staging import StagedBucket, stage
from agentrl.weights.transfer import StagedTransfer
from tests.conformance.engine import Fault, Kit
from tests.tiny import tiny_model
from tests.unit.weights.recording import Fleet

UNCLOSED = "ignore:Unclosed context:ResourceWarning"  # vLLM leaves its zmq context to the garbage collector
MAX_LEN = 512
DEADLINE_S = 60.0
ENGINE = EngineSection(max_num_seqs=64, kv_cache_gib=0.25, enforce_eager=True)
NOISE = 0.05
STALE = ".layers.1."


def spec(model: Path) -> VllmSpec:
    return VllmSpec(str(model), ENGINE, "float32", MAX_LEN)


def without_eos(model: Path) -> Path:
    """Let nothing but stop tokens and lengths end a completion."""
    for name, keys in {
        "config.json": ["eos_token_id"],
        "generation_config.json": ["eos_token_id"],
        "tokenizer_config.json": ["eos_token"],
    }.items():
        values = json.loads((model / name).read_text())
        for key in keys:
            values.pop(key, None)
        (model / name).write_text(json.dumps(values))
    return model


class Trainer:
    """The weights of a model and what becomes of them."""

    def __init__(self, model: Path, scratch: Path) -> None:
        self.model = LlamaForCausalLM.from_pretrained(model, dtype=torch.float32)
        self.folder, self.scratch = model, scratch
        self.version = Version(0, -1)
        self._states: dict[Version, dict[str, torch.Tensor]] = {}
        self._random = torch.Generator().manual_seed(0)

    def step(self) -> None:
        """Change every weight, and remember the result as the next version."""
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter += NOISE * torch.randn(parameter.shape, generator=self._random)
        self.version = Version(0, self.version.n + 1)
        self._states[self.version] = {name: value.clone() for name, value in self.model.state_dict().items()}

    def stage(self) -> list[StagedBucket]:
        return list(stage(self.model.named_parameters(), self.scratch, bucket_bytes=64 << 10))

    def logprobs(self, ids: Sequence[int], temperature: float = 1.0, version: Version | None = None) -> list[float]:
        """Logprobs of ids[1:] by transformers, under any version."""
        self.model.load_state_dict(self._states[version or self.version])
        with torch.no_grad():
            logits = self.model(torch.tensor([list(ids)])).logits[0, :-1] / temperature
        self.model.load_state_dict(self._states[self.version])
        chosen = torch.log_softmax(logits, -1).gather(1, torch.tensor(ids[1:]).unsqueeze(1))
        return [float(value) for value in chosen.squeeze(1)]


async def publish(
    trainer: Trainer, *engines: Any, canary: LogprobCanary | None = None
) -> tuple[PublishTimings, dict[int, str]]:
    """Publish the trainer's weights; returns timings, and why which engines must be replaced."""

    async def staged(version: Version, deadline_s: float) -> AsyncGenerator[StagedBucket]:
        for bucket in trainer.stage():
            yield bucket

    async def score(ids: tuple[int, ...], deadline_s: float) -> Sequence[float]:
        return trainer.logprobs(ids)

    fleet = Fleet(*engines)
    timings = await Publisher(fleet, StagedTransfer(staged), DEADLINE_S, canary, score).publish(trainer.version)
    return timings, fleet.replaced


async def in_worker(engine: Engine, function: Callable[[Any], Any]) -> Any:
    """Run `function(worker)` inside the engine's process; the function must be a nested one."""
    assert isinstance(engine, VllmEngine)
    process: Any = engine._process
    return (await process.call_workers("testing", DEADLINE_S, function))[0]


async def skip_a_layer(engine: Engine, rank: int = 0) -> None:
    """Let a worker lose the tensors of one layer on their way into the model, for the update that has begun."""

    def lose(worker: Any) -> None:
        if worker.rank != rank:
            return
        observer = worker.weight_transfer_engine.observer
        load = observer._load
        observer._load = lambda weights: load((name, tensor) for name, tensor in weights if ".layers.1." not in name)

    await in_worker(engine, lose)


class VllmKit(Kit):
    prompt = Prompt((5, 6, 7, 8))
    vocab_size = 320
    can_sleep = False
    max_model_len = MAX_LEN
    tolerance = 1e-4
    long_tokens = 400
    quiet_s = 0.3
    deadline_s = DEADLINE_S
    death_s = 5.0

    def __init__(self, model: Path, scratch: Path) -> None:
        self.trainer = Trainer(model, scratch)

    async def update(self, engine: Engine, fault: Fault = "none") -> Version:
        self.trainer.step()
        buckets = self.trainer.stage()
        assert len(buckets) > 2
        await engine.start_update(self.deadline_s)
        if fault == "stale":
            await skip_a_layer(engine)
        for bucket in buckets[1:] if fault == "dropped" else buckets:
            await engine.load(bucket.load, self.deadline_s)
        for bucket in buckets:
            bucket.discard()
        tensors = tuple(tensor for bucket in buckets for tensor in bucket.tensors)
        await engine.finish_update(WeightManifest(self.trainer.version, tensors), self.deadline_s)
        return self.trainer.version

    def reference(self, ids: Sequence[int], temperature: float, version: Version) -> Sequence[float]:
        return self.trainer.logprobs(ids, temperature, version)

    async def kill(self, engine: Engine) -> None:
        assert isinstance(engine, VllmEngine)
        os.kill(engine.pids()[-1], signal.SIGKILL)


def model_at(folder: Path) -> Path:
    return tiny_model(folder, max_length=MAX_LEN)
