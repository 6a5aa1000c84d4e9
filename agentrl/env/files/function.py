"""FunctionEnv: an environment made from `async def agent(task, ctx, model)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from agentrl.endpoint import Model
from agentrl.env.context import Context
from agentrl.env.files.results import number, signals
from agentrl.env.files.rows import RowsEnv
from agentrl.env.tasks import Task
from agentrl.types import Signal


class FunctionEnv(RowsEnv):
    """Plays the agent of a file on the rows of `env.data`; the reward is what it returns.

    That is a number, or a dict with "reward"; the other numbers of a dict are recorded with weight 0.
    """

    _agent: ClassVar[Callable[..., Any]]

    def play(self, task: Task, ctx: Context, model: Model) -> object:
        """Run the agent in a thread; what it returns may have to be awaited."""
        return self._agent(task, ctx, model)

    def score(self, ctx: Context) -> list[Signal]:
        """Return the reward that the agent returned; nothing if a limit of the run ended it before."""
        result, where = ctx.result, f"the result of {type(self).__name__}"
        if result is None and not (ctx.stop_reason and ctx.stop_reason.is_terminal):
            return []
        if not isinstance(result, Mapping):
            return signals(result, "reward", where)
        extra = {name: value for name, value in result.items() if name != "reward"}
        return [*signals({"reward": result.get("reward")}, "reward", where), *_recorded(extra)]


class CoroutineEnv(FunctionEnv):
    """The same with an agent that is async: nothing is begun that is not awaited, whenever an episode ends."""

    async def play(self, task: Task, ctx: Context, model: Model) -> object:
        """Run the agent."""
        return await self._agent(task, ctx, model)


def _recorded(values: Mapping[str, Any]) -> list[Signal]:
    numbers = {str(name): number(value) for name, value in values.items()}
    return [Signal(name, value, weight=0.0) for name, value in numbers.items() if isinstance(value, int | float)]
