"""Turns an environment's rewards into signals; whatever they raise becomes an invalid signal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from agentrl.env.context import Episode
from agentrl.env.rewards import Reward, as_signals, failed, invalid, rewards_of
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


async def judge_success(env: Env) -> Signal:
    """What the environment's own `success` says of the finished episode: 1, 0, or why it could not say."""
    blank = Signal("success", None, weight=0.0, verifier=f"{type(env).__name__}.success")
    outcome = await env.code.attempt(env.success, env.ctx, timeout_s=env.limits.score_timeout_s)
    if outcome.error is not None:
        return failed(blank, outcome.error)
    if not isinstance(outcome.value, bool | np.bool_):
        return invalid(blank, f"returned {outcome.value!r}; return True or False")
    return replace(blank, value=float(outcome.value))


def passes(signals: Iterable[Signal]) -> bool:
    """Whether rewards come to at least half of what their weights allow, each taken to be worth at most 1.

    The rewards of the episode as a whole decide (scopes episode and group). Turn rewards are steps on the way and could
    add up to a pass without a result: they decide where nothing else pays, each allowed its weight once.
    """
    counted = [s for s in signals if s.weight and s.value is not None]
    whole = [s for s in counted if not _is_turns(s)]
    deciding = whole if any(s.weight > 0 for s in whole) else counted
    of_turns = {s.name: s.weight for s in deciding if _is_turns(s)}
    weights = [*of_turns.values(), *(s.weight for s in deciding if not _is_turns(s))]
    return sum(s.weight * (s.value or 0.0) for s in deciding) >= 0.5 * sum(w for w in weights if w > 0) > 0


def _is_turns(signal: Signal) -> bool:
    return signal.scope == "turn" and signal.turn is not None
