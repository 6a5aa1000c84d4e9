"""Requests and completions in vLLM's form and in ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from agentrl.types import Completion, FinishReason, Sampling, Version, VersionSpan

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest
    from vllm.outputs import RequestOutput
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM


def sampling_params(sampling: Sampling) -> SamplingParams:
    """Return the parameters of a completion."""
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


def scoring_params() -> SamplingParams:
    """Return the parameters of a request for the logprobs of its prompt; vLLM samples one token in any case."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    return SamplingParams(
        max_tokens=1,
        prompt_logprobs=0,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_clone=True,
    )


async def last_output(
    llm: AsyncLLM, number: int, ids: tuple[int, ...], params: SamplingParams, lora: LoRARequest | None
) -> RequestOutput:
    """Return what vLLM answers to one request, once it has ended."""
    from vllm.inputs.engine import tokens_input

    prompt = tokens_input(list(ids))
    outputs = [output async for output in llm.generate(prompt, params, str(number), lora_request=lora)]
    return outputs[-1]


def completion_of(output: RequestOutput) -> Completion:
    """Return the completion in vLLM's output; an adapter is named after its version."""
    sampled = output.outputs[0]
    ids = tuple(sampled.token_ids)
    logprobs: Any = sampled.logprobs or ()
    spans = tuple(VersionSpan(Version.parse(s.version), s.start, s.end) for s in sampled.weight_versions or ())
    if output.lora_request is not None:
        version = Version.parse(output.lora_request.lora_name.partition("#")[0])
        spans = (VersionSpan(version, 0, len(ids)),) if ids else ()
    return Completion(ids, chosen(ids, logprobs), spans, _finish_reason(sampled.finish_reason))


def chosen(ids: tuple[int, ...], logprobs: Sequence[Any]) -> tuple[float, ...]:
    """Return the logprob of each of `ids` among those that vLLM lists at its position."""
    return tuple(float(choices[token].logprob) for token, choices in zip(ids, logprobs, strict=True))


def rest(sampling: Sampling, done: int) -> Sampling:
    """Return the sampling of what follows `done` tokens, with random numbers of its own."""
    if not done:
        return sampling
    seed = None if sampling.seed is None else (sampling.seed + done) % (1 << 63)
    return replace(sampling, max_tokens=sampling.max_tokens - done, seed=seed)


def joined(one: Completion, other: Completion) -> Completion:
    """Return a completion and its continuation as one."""
    shift = len(one.ids)
    spans = tuple(VersionSpan(span.version, span.start + shift, span.end + shift) for span in other.versions)
    versions = (*one.versions, *spans)
    return Completion(one.ids + other.ids, one.logprobs + other.logprobs, versions, other.finish_reason)


def _finish_reason(reason: str | None) -> FinishReason:
    return cast(FinishReason, reason) if reason in ("stop", "length") else "abort"
