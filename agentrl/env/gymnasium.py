"""The synchronous face of an environment: Gymnasium's reset, step and close around the async driver surface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from typing import Any

import gymnasium

from agentrl.env.context import Context, Start, StepResult
from agentrl.env.driver.loop import run_on_private_loop
from agentrl.env.limits import Limits
from agentrl.env.messages import ChatSpace, TurnSpace
from agentrl.env.tasks import IndexedTasks, Task
from agentrl.errors import VerifierError
from agentrl.types import Message, Signal, StopReason

ENDLESS_SAMPLE = 1024


class Face(gymnasium.Env[list[Message], Message | str], ABC):
    """Observation: the new messages. Action: the assistant's turn. Reward: the sum of the new signals."""

    limits: Limits
    ctx: Context

    def __init__(self, split: str) -> None:
        self.observation_space = ChatSpace()
        self.action_space = TurnSpace()
        self._split = split

    @abstractmethod
    async def _tasks(self, split: str, seed: int) -> IndexedTasks: ...

    @abstractmethod
    async def areset(self, task: Task, *, seed: int = 0, member: int = 0, deadline_s: float = 3600.0) -> Start:
        """See Env."""

    @abstractmethod
    async def astep(self, action: Message | str) -> StepResult:
        """See Env."""

    @abstractmethod
    async def afinish(self, stop_reason: StopReason) -> tuple[Signal, ...]:
        """See Env."""

    @abstractmethod
    async def aclose(self) -> None:
        """See Env."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[list[Message], dict[str, Any]]:
        """Begin an episode; `options` may fix `index`, `split` and `member`. `info` names the task and the tools."""
        super().reset(seed=seed)
        start = run_on_private_loop(self._begin(**(options or {})))
        task = self.ctx.task
        info = {"task": task.id, "split": task.split, "index": task.index, "tools": list(start.tools)}
        return deepcopy(list(start.messages)), info

    def step(self, action: Message | str) -> tuple[list[Message], float, bool, bool, dict[str, Any]]:
        """Take the assistant's turn. A signal that counts and is invalid raises VerifierError: it is never a 0."""
        result, signals, stop_reason = run_on_private_loop(self._advance(action))
        for signal in signals:
            if signal.weight and not signal.valid:
                raise VerifierError(f"{signal.verifier or signal.name}: {signal.reason}")
        reward = sum((s.weight * s.value for s in signals if s.value is not None), 0.0)
        is_cut = stop_reason is StopReason.MAX_TURNS
        return deepcopy(list(result.messages)), reward, result.done, is_cut, {"signals": list(signals)}

    def close(self) -> None:
        """Tear the episode down. Idempotent."""
        run_on_private_loop(self.aclose())

    async def _begin(self, index: int | None = None, split: str = "", member: int = 0) -> Start:
        tasks = await self._tasks(split or self._split, 0)
        drawn = int(self.np_random.integers(tasks.size or ENDLESS_SAMPLE))
        seed = int(self.np_random.integers(2**31))
        return await self.areset(tasks[drawn if index is None else index], seed=seed, member=member)

    async def _advance(self, action: Message | str) -> tuple[StepResult, tuple[Signal, ...], StopReason | None]:
        result = await self.astep(action)
        signals = result.signals
        is_last = len(self.ctx.turns) >= self.limits.max_turns
        stop_reason = StopReason.ENV_DONE if result.done else StopReason.MAX_TURNS if is_last else None
        if stop_reason is not None:
            paid = len(self.ctx.signals) - len(signals)
            signals = (await self.afinish(stop_reason))[paid:]
            await self.aclose()
        return result, signals, stop_reason
