"""Turns an environment's rewards into signals; whatever they raise becomes an invalid signal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from agentrl.env.episode import Episode
from agentrl.env.rewards import Reward, as_signals, failed, rewards_of
from agentrl.types import Scope, Signal

if TYPE_CHECKING:
    from agentrl.env.base import Env


async def judge(env: Env, scope: Scope, turn: int | None = None) -> tuple[Signal, ...]:
    """One signal of each `@reward` method of this scope."""
    return tuple([await judge_one(env, reward, turn) for reward in rewards_of(type(env), scope)])


async def judge_one(env: Env, reward: Reward, turn: int | None) -> Signal:
    """The signal of one `@reward` method."""
    outcome = await env.code.attempt(getattr(env, reward.name), env.ctx, timeout_s=env.limits.score_timeout_s)
    return reward.failed(outcome.error, turn) if outcome.error else reward.signal(outcome.value, turn)


async def score(env: Env) -> tuple[Signal, ...]:
    """The signals of an environment that writes its own `score`."""
    verifier = f"{type(env).__name__}.score"
    outcome = await env.code.attempt(env.score, env.ctx, timeout_s=env.limits.score_timeout_s)
    if outcome.error is not None:
        return (failed(Signal("score", None, verifier=verifier), outcome.error),)
    return as_signals(outcome.value, verifier)


async def judge_group(env: Env, reward: Reward, episodes: Sequence[Episode]) -> tuple[Signal, ...]:
    """One signal for each episode; when the method fails, every one of them is invalid."""
    outcome = await env.code.attempt(getattr(env, reward.name), episodes, timeout_s=env.limits.score_timeout_s)
    values = outcome.value
    if outcome.error is not None:
        return (reward.failed(outcome.error),) * len(episodes)
    if isinstance(values, str | Mapping) or not isinstance(values, Collection) or len(values) != len(episodes):
        return (reward.invalid(f"returned {values!r}; return one value for each episode"),) * len(episodes)
    return tuple(reward.signal(value) for value in values)
