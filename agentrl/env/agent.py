"""AgentEnv: an environment in which the author's agent asks the model, instead of answering it turn by turn."""
# ruff: noqa: ARG002  (the default methods ignore arguments that an author's own use)

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from agentrl.endpoint import Model
from agentrl.env.base import Env, MaybeAsync
from agentrl.env.config import Limits
from agentrl.env.context import Context
from agentrl.env.tasks import Task
from agentrl.types import Message


class AgentEnv(Env):
    """An environment whose agent drives: write `tasks`, `play`, and `@reward` methods or `score`.

    `play` runs any agent against `model`; each of its calls is a turn. The episode ends when it returns. `ctx.result`
    is what it returned, `ctx.turns` has every call. `limits.max_turns` limits the calls: further ones are refused.
    """

    limits = Limits(max_turns=32)
    _drives: ClassVar[bool] = True

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        """Return no message: the agent sends them."""
        return []

    @abstractmethod
    def play(self, task: Task, ctx: Context, model: Model) -> MaybeAsync[object]:
        """Run the agent on a task. Plain methods run in a thread, where they may block.

        An exception is an error of the environment, unless the model caused it: then the episode ends as in step mode,
        with max_tokens, max_turns or context_overflow (scored), or with the error of the engine. The model has caused
        an error that follows a call that a limit of the run refused, or an answer that one cut.
        """
