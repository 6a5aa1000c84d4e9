"""The peak memory of a vLLM engine on a CPU: `python -m tests.real.engine_memory MODEL DTYPE` prints it as JSON."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from agentrl.config.schema import EngineSection
from agentrl.engine.vllm.settings import VllmSpec, engine_args, environment

SEQUENCES, CONTEXT, SAMPLED, KV_CACHE_GIB = 32, 512, 64, 0.25
"""All sequences are sampled at once. They fill a part of the cache, which vLLM writes when it starts."""


@dataclass(frozen=True)
class EnginePeak:
    """Bytes above the `baseline`, which the process has when it begins to load, and the tokens that were sampled."""

    nbytes: int
    baseline: int
    tokens: int


def status(name: str) -> int:
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def spec_of(model: Path, dtype: str) -> VllmSpec:
    engine = EngineSection(max_num_seqs=SEQUENCES, kv_cache_gib=KV_CACHE_GIB, enforce_eager=True)
    return VllmSpec(str(model), engine, dtype, CONTEXT)


def peak_of(model: Path, dtype: str) -> EnginePeak:
    """Load the model, read prompts of almost the whole context and sample the rest."""
    spec = spec_of(model, dtype)
    os.environ.update(environment(spec, sorted(os.sched_getaffinity(0))))
    from vllm import LLM, EngineArgs, SamplingParams, TokensPrompt
    from vllm.v1.worker.cpu_worker import CPUWorker

    baselines, load_model = list[int](), CPUWorker.load_model

    def loading(worker: CPUWorker, **keys: Any) -> None:
        baselines.append(status("VmRSS"))  # vLLM imports most libraries while it starts
        load_model(worker, **keys)

    CPUWorker.load_model = loading
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    args = engine_args(spec)
    options = {item.name: getattr(args, item.name) for item in fields(EngineArgs)}
    llm = LLM(**options)
    prompts = [[10 + (7 * n + m) % (vocabulary - 10) for m in range(CONTEXT - SAMPLED)] for n in range(SEQUENCES)]
    outputs = llm.generate(
        [TokensPrompt(prompt_token_ids=prompt) for prompt in prompts],
        SamplingParams(max_tokens=SAMPLED, ignore_eos=True, logprobs=0),
        use_tqdm=False,
    )
    [baseline] = baselines
    return EnginePeak(status("VmHWM") - baseline, baseline, sum(len(output.outputs[0].token_ids) for output in outputs))


if __name__ == "__main__":
    print(json.dumps(asdict(peak_of(Path(sys.argv[1]), sys.argv[2]))), flush=True)
