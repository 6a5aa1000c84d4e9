"""RewardFunctionEnv: prompts of one turn, scored by the `reward_func(queries, prompts, labels)` of a file."""
# ruff: noqa: ARG002  (the arguments of `play`)

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from agentrl.endpoint import Model
from agentrl.env.config import Limits
from agentrl.env.context import Context
from agentrl.env.files.results import signals
from agentrl.env.files.rows import PromptEnv
from agentrl.env.rewards import failed
from agentrl.env.tasks import Task
from agentrl.errors import catch
from agentrl.types import Signal


class RewardFunctionEnv(PromptEnv):
    """Asks the policy once; the reward is that of the file, for a list of one answer.

    A query is the prompt and the answer with all marks of the template, as in OpenRLHF.
    """

    limits = Limits(max_turns=1, score_timeout_s=180.0)
    _reward_func: ClassVar[Callable[..., Any]]

    async def play(self, task: Task, ctx: Context, model: Model) -> tuple[str, str, Any]:
        """Return the query, the prompt and the label."""
        tokens = model.tokens
        prompt = self.prompt(task, tokens.tokenizer)
        ids = tokens.tokenizer.encode(prompt, add_special_tokens=False)
        completion = await tokens.generate(ids)
        query = tokens.tokenizer.decode([*ids, *completion.ids], skip_special_tokens=False)
        return query, prompt, self.label(task)

    def score(self, ctx: Context) -> list[Signal]:
        """Call the function of the file; what it raises makes the reward invalid."""
        query, prompt, label = ctx.result
        outcome = catch(self._reward_func, [query], [prompt], [label])
        if outcome.error is not None:
            return [failed(Signal("reward", None), outcome.error)]
        if inspect.iscoroutine(outcome.value):
            outcome.value.close()
        return signals(outcome.value, "rewards", f"the result of {type(self).__name__}")
