"""Plain vLLM: `LLM.generate` in one process, without agentrl."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from agentrl.engine.vllm.settings import VllmSpec


@dataclass(frozen=True, slots=True)
class RawRequest:
    """One prompt with the seed that the rollout path used for it."""

    ids: tuple[int, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Result of one call of `LLM.generate`."""

    seconds: float
    sampled: tuple[tuple[int, ...], ...]

    @property
    def tokens(self) -> int:
        """Sampled tokens."""
        return sum(map(len, self.sampled))


class RawVllm:
    """An LLM with the engine settings of `spec`."""

    def __init__(self, spec: VllmSpec) -> None:
        from vllm import LLM

        engine = spec.engine
        self._llm = LLM(
            model=spec.model,
            dtype=spec.dtype,
            max_model_len=spec.max_model_len,
            max_num_seqs=engine.max_num_seqs,
            max_num_batched_tokens=max(8192, spec.max_model_len),
            enable_chunked_prefill=False,
            enforce_eager=bool(engine.enforce_eager),
            enable_prefix_caching=engine.prefix_caching,
            kv_cache_memory_bytes=int(engine.kv_cache_gib * (1 << 30)),
            seed=spec.seed,
            logprobs_mode="processed_logprobs",
            disable_log_stats=True,
        )

    def generate(
        self, requests: Sequence[RawRequest], max_tokens: int, stop: tuple[int, ...], is_bare: bool = False
    ) -> RawBatch:
        """Sample all requests in one call; `is_bare` omits what training needs: logprobs and a seed a request."""
        from vllm import SamplingParams, TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        extra = [{} if is_bare else {"logprobs": 0, "flat_logprobs": True, "seed": r.seed} for r in requests]
        params = [
            SamplingParams(
                max_tokens=max_tokens,
                temperature=1.0,
                stop_token_ids=list(stop),
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
                **more,
            )
            for more in extra
        ]
        prompts = [TokensPrompt(prompt_token_ids=list(request.ids)) for request in requests]
        started = time.perf_counter()
        outputs = self._llm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - started
        return RawBatch(seconds, tuple(tuple(output.outputs[0].token_ids) for output in outputs))
