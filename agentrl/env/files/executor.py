"""ExecutorEnv: an environment made from an `AgentExecutor` of OpenRLHF."""
# ruff: noqa: ARG002  (the arguments of `play`)

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from agentrl.endpoint import Model
from agentrl.env.config import Limits
from agentrl.env.context import Context
from agentrl.env.files.llm_engine import OF_EPISODE, LLMEngine, SamplingParams
from agentrl.env.files.results import returned, signals
from agentrl.env.files.rows import PromptEnv
from agentrl.env.messages import short
from agentrl.env.sharing import shared
from agentrl.env.tasks import Task
from agentrl.errors import EnvError
from agentrl.types import Signal


class ExecutorEnv(PromptEnv):
    """Lets the executor of a file play prompts with labels; the reward is that of its result.

    It samples with `llm_engine.generate`, which records every token. `scores` and `extra_logs` have weight 0.
    """

    limits = Limits(max_turns=1000)
    _make: ClassVar[Callable[..., Any]]

    @shared
    def executor(self) -> Any:
        """Make the executor of this process."""
        return self._make()

    async def play(self, task: Task, ctx: Context, model: Model) -> Mapping[str, Any]:
        """Return the result of the executor."""
        tokens = model.tokens
        engine = LLMEngine(tokens)
        OF_EPISODE.set(engine)
        execute = self.executor.execute
        images = {"images": None} if "images" in inspect.signature(execute).parameters else {}
        where = f"{type(self).__name__}.execute"
        result = execute(
            prompt=self.prompt(task, tokens.tokenizer),
            label=self.label(task),
            sampling_params=SamplingParams(tokens.temperature, tokens.max_tokens),
            max_length=tokens.max_context,
            hf_tokenizer=tokens.tokenizer,
            llm_engine=engine,
            **images,
        )
        found = await returned(result, where, "reward")
        check_actions(where, found, engine.sampled)
        return found

    def score(self, ctx: Context) -> list[Signal]:
        """Return the reward of the result; nothing if a limit of the run ended the executor before it returned."""
        if ctx.result is None:
            return []
        return signals(ctx.result, "reward", f"the result of {type(self).__name__}.execute")


def check_actions(where: str, result: Mapping[str, Any], sampled: list[list[int]]) -> None:
    """Raise EnvError if the actions in a result are not the sampled tokens, which are what is trained."""
    tokens, ranges = result.get("observation_tokens"), result.get("action_ranges")
    if tokens is None or ranges is None:
        return
    try:
        actions = [[int(token) for token in tokens[start:end]] for start, end in ranges]
    except (TypeError, ValueError):
        raise EnvError(
            f"{where} returned action_ranges {short(ranges)}; return pairs (start, end) of positions in "
            "observation_tokens, a list of ids"
        ) from None
    if actions != sampled:
        raise EnvError(
            f"{where} returned {len(actions)} action_ranges that are not the {len(sampled)} answers of "
            "llm_engine.generate, in order: every sampled token is trained, so return each of them unchanged"
        )
