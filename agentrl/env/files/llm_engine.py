"""The `llm_engine` and `sampling_params` that an executor of OpenRLHF gets: vLLM's, as far as the contract goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain
from operator import index
from typing import Any

from agentrl.endpoint import Tokens
from agentrl.env.files.results import PAGE, is_given
from agentrl.env.messages import short
from agentrl.errors import EnvError
from agentrl.types import Completion

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,), "best_of": (1,), "top_p": (1,), "top_k": (-1, 0), "min_p": (0,), "min_tokens": (0,),
    "presence_penalty": (0,), "frequency_penalty": (0,), "repetition_penalty": (1,), "logit_bias": ({},),
    "bad_words": ([],), "allowed_token_ids": (), "logits_processors": ([],), "guided_decoding": (),
    "structured_outputs": (), "ignore_eos": (False,), "stop_token_ids": ([],),
}  # fmt: skip
"""Sampling parameters that change the policy's distribution or its end, and the values that do not; nor does None."""


@dataclass
class SamplingParams:
    """Sampling parameters of the run. An executor may lower `max_tokens` and set `stop`."""

    temperature: float
    max_tokens: int | None
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    min_tokens: int = 0
    n: int = 1
    logprobs: int | None = 1
    stop: str | list[str] | None = None
    skip_special_tokens: bool = False
    include_stop_str_in_output: bool = False


@dataclass(frozen=True)
class Logprob:
    """The logprob of a sampled token."""

    logprob: float


@dataclass(frozen=True)
class Output:
    """One completion, as vLLM returns it. A stop token is in `token_ids` and not in `text`."""

    text: str
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]]
    finish_reason: str


@dataclass(frozen=True)
class RequestOutput:
    """The answer to a request."""

    prompt_token_ids: list[int]
    outputs: list[Output]


OF_EPISODE: ContextVar[LLMEngine | None] = ContextVar("llm_engine", default=None)
"""The engine of the episode that the running code belongs to."""


@dataclass
class LLMEngine:
    """Samples from the policy for one episode."""

    tokens: Tokens
    sampled: list[list[int]] = field(default_factory=list)
    """The ids of every completion."""

    async def generate(
        self, prompt_token_ids: Sequence[int], sampling_params: Any, multi_modal_data: Any = None
    ) -> RequestOutput:
        """Sample one completion. Raises EnvError for images, wrong ids, and parameters that a run cannot follow."""
        if OF_EPISODE.get() is not self:
            raise EnvError(
                "llm_engine.generate was called for another episode than its own: an executor plays several at once, "
                "and each call of execute has its own llm_engine. Use that one; do not keep it on self, or in a "
                "server: `async def agent(task, ctx, model)` has a server of the OpenAI API at model.base_url "
                f"({PAGE})"
            )
        if is_given(multi_modal_data):
            raise EnvError("llm_engine.generate got multi_modal_data: the policy reads text only")
        check_params(sampling_params, self.tokens.temperature)
        ids, most = self._ids(prompt_token_ids), getattr(sampling_params, "max_tokens", None)
        if most is not None and not isinstance(most, int):
            raise EnvError(f"llm_engine.generate got max_tokens {most!r} in sampling_params; give a whole number")
        is_lower = most is not None and most < self.tokens.max_context - len(ids)
        stop = stop_texts(getattr(sampling_params, "stop", None))
        completion = await self.tokens.generate(ids, most if is_lower else None, stop)
        self.sampled.append(list(completion.ids))
        return RequestOutput(ids, [self._output(completion, sampling_params, stop)])

    def _ids(self, prompt: Iterable[Any]) -> list[int]:
        """Return the ids of a prompt. The policy may sample ids that its tokenizer lacks, so they may come back."""
        try:
            ids = [index(token) for token in prompt]
        except TypeError:
            raise EnvError(f"llm_engine.generate got {short(prompt)} as prompt_token_ids; give a list of ids") from None
        if not ids:
            raise EnvError("llm_engine.generate got an empty prompt; give at least one id")
        size = len(self.tokens.tokenizer)
        if outside := {one for one in ids if not 0 <= one < size}.difference(chain.from_iterable(self.sampled)):
            raise EnvError(f"llm_engine.generate got the id {min(outside)}; the tokenizer has ids from 0 to {size - 1}")
        return ids

    def _output(self, completion: Completion, params: Any, stop: list[str]) -> Output:
        ids = list(completion.ids)
        logprobs = [{token: Logprob(value)} for token, value in zip(ids, completion.logprobs, strict=True)]
        keeps_stop = getattr(params, "include_stop_str_in_output", False)
        is_ended = bool(ids) and ids[-1] in self.tokens.stop_token_ids and not keeps_stop
        skips = getattr(params, "skip_special_tokens", False)
        text = self.tokens.tokenizer.decode(ids[:-1] if is_ended else ids, skip_special_tokens=skips)
        ends = [] if keeps_stop else [text.find(one) for one in stop if one in text]
        return Output(text[: min(ends, default=None)], ids, logprobs, completion.finish_reason)


def check_params(params: Any, temperature: float) -> None:
    """Raise EnvError if sampling parameters are not those of the run."""
    set_here = {name: getattr(params, name, None) for name in NEUTRAL}
    changed = {name: value for name, value in set_here.items() if value is not None and value not in NEUTRAL[name]}
    if getattr(params, "temperature", temperature) not in (None, temperature):
        changed["temperature"] = params.temperature
    if changed:
        names = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        raise EnvError(
            f"sampling_params has {names}, but a run samples from the policy at rollout.temperature {temperature:g}: "
            f"an agent may set max_tokens and stop ({PAGE})"
        )


def stop_texts(stop: Any) -> list[str]:
    """Return the stop strings of sampling parameters. Raises EnvError for an empty one: it cuts every answer."""
    texts = list(stop) if isinstance(stop, list | tuple | set) else [] if stop is None else [stop]
    if wrong := [one for one in texts if not (one and isinstance(one, str))]:
        raise EnvError(f"sampling_params has stop={stop!r}: {wrong[0]!r} is not a text to stop at ({PAGE})")
    return texts
