"""Rewards become signals; whatever they raise becomes an invalid signal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from agentrl.env.base import Env
from agentrl.env.context import Episode
from agentrl.env.driver.user_code import UserCode
from agentrl.env.messages import short
from agentrl.env.rewards import Reward, as_signals, failed, filled, invalid, rewards_of
from agentrl.errors import Caught
from agentrl.types import Signal


@dataclass(frozen=True, slots=True)
class Scorer:
    """Asks the rewards of one environment object."""

    env: Env
    code: UserCode
    patience_s: float = 0.0
    """Time on top of `limits.score_timeout_s`, for the replies of roles."""

    async def turn(self, index: int) -> tuple[Signal, ...]:
        """Return the signals of the turn that just ended."""
        return tuple([await self._turn(reward, index) for reward in rewards_of(type(self.env), "turn")])

    async def episode(self) -> tuple[Signal, ...]:
        """Return the signals of the whole episode: those of `score` if defined, else of the `@reward` methods."""
        env = self.env
        if type(env).score is not Env.score:
            return await self._finished(env.score, Signal("score", None, verifier=self._verifier("score")), keep=True)
        rewards = rewards_of(type(env), "episode")
        return tuple(chain(*[await self._finished(getattr(env, reward.name), reward.blank()) for reward in rewards]))

    async def group(self, episodes: Sequence[Episode]) -> tuple[tuple[Signal, ...], ...]:
        """Return the group rewards of each episode; a method that returns NotImplemented gives none."""
        asked = [await self._column(reward, episodes) for reward in rewards_of(type(self.env), "group")]
        columns = [column for column in asked if column is not None]
        return tuple(tuple(column[i] for column in columns) for i in range(len(episodes)))

    async def success(self) -> Signal:
        """Result of `success` as a signal: 1, 0, or invalid with the reason."""
        blank = Signal("success", None, weight=0.0, verifier=self._verifier("success"))
        outcome = await self._ask(self.env.success, self.env.ctx)
        if outcome.error is not None:
            return failed(blank, outcome.error)
        if not isinstance(outcome.value, bool | np.bool_):
            return invalid(blank, f"returned {short(outcome.value)}; return True or False")
        return replace(blank, value=float(outcome.value))

    async def _finished(self, method: Callable[..., Any], blank: Signal, keep: bool = False) -> tuple[Signal, ...]:
        outcome = await self._ask(method, self.env.ctx)
        if outcome.error is not None:
            return (failed(blank, outcome.error),)
        return as_signals(blank, outcome.value, self._speakers, keep)

    async def _turn(self, reward: Reward, turn: int) -> Signal:
        outcome = await self._ask(getattr(self.env, reward.name), self.env.ctx)
        blank = reward.blank(turn)
        return failed(blank, outcome.error) if outcome.error else filled(blank, outcome.value, self._speakers)

    async def _column(self, reward: Reward, episodes: Sequence[Episode]) -> tuple[Signal, ...] | None:
        """Return one signal for each episode, None for NotImplemented; if the method fails, all of them are invalid."""
        outcome = await self._ask(getattr(self.env, reward.name), episodes)
        values = outcome.value
        if outcome.error is not None:
            return (failed(reward.blank(), outcome.error),) * len(episodes)
        if values is NotImplemented:
            return None
        if isinstance(values, str | Mapping) or not isinstance(values, Collection) or len(values) != len(episodes):
            reason = f"returned {short(values)}; return one value for each episode"
            return (invalid(reward.blank(), reason),) * len(episodes)
        return tuple(filled(reward.blank(), value) for value in values)

    async def _ask(self, method: Callable[..., Any], argument: Any) -> Caught:
        return await self.code.attempt(method, argument, timeout_s=self.env.limits.score_timeout_s + self.patience_s)

    @property
    def _speakers(self) -> list[str]:
        return [turn.agent for turn in self.env.ctx.turns]

    def _verifier(self, hook: str) -> str:
        return f"{type(self.env).__name__}.{hook}"
