"""The peak memory of a vLLM engine on a CPU: `python -m tests.real.engine_memory MODEL DTYPE` prints it as JSON."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from agentrl.config.schema import EngineSection
from agentrl.engine.vllm.settings import VllmSpec, engine_args, environment
from tests.real.rank_memory import status

SEQUENCES, CONTEXT, KV_CACHE_GIB = 32, 512, 0.25
"""All sequences are sampled at once. They fill a part of the cache, which vLLM writes when it starts."""


@dataclass(frozen=True)
class EnginePeak:
    """Bytes above the baseline after imports, and the tokens that were sampled."""

    nbytes: int
    tokens: int


def spec_of(model: Path, dtype: str) -> VllmSpec:
    engine = EngineSection(max_num_seqs=SEQUENCES, kv_cache_gib=KV_CACHE_GIB, enforce_eager=True)
    return VllmSpec(str(model), engine, dtype, CONTEXT)


def peak_of(model: Path, dtype: str) -> EnginePeak:
    """Load the model, read prompts of almost the whole context and sample the rest."""
    spec = spec_of(model, dtype)
    os.environ.update(environment(spec, sorted(os.sched_getaffinity(0))))
    import vllm.model_executor.models.llama
    import vllm.v1.engine.core
    import vllm.v1.worker.cpu_worker  # noqa: F401 (part of the baseline, as everything that an engine imports)
    from vllm import LLM, SamplingParams, TokensPrompt

    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    args = engine_args(spec)
    baseline = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # see proc(5): resets VmHWM
    llm = LLM.from_engine_args(args)
    prompts = [[10 + (7 * n + m) % (vocabulary - 10) for m in range(CONTEXT - 64)] for n in range(SEQUENCES)]
    outputs = llm.generate(
        [TokensPrompt(prompt_token_ids=prompt) for prompt in prompts],
        SamplingParams(max_tokens=64, ignore_eos=True, logprobs=0),
        use_tqdm=False,
    )
    return EnginePeak(status("VmHWM") - baseline, sum(len(output.outputs[0].token_ids) for output in outputs))


if __name__ == "__main__":
    print(json.dumps(asdict(peak_of(Path(sys.argv[1]), sys.argv[2]))), flush=True)
