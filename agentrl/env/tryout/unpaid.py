"""Rewards without a value in a tryout: whether the empty answer is the cause."""

from __future__ import annotations

import asyncio

from agentrl.env.base import Env
from agentrl.env.context import Episode
from agentrl.env.play import aplay
from agentrl.env.tasks import Task
from agentrl.errors import acatch, catch
from agentrl.types import Signal

ANSWERS = ("1", "yes")
ASK_S = 2.0


def without_value(episode: Episode) -> Signal | None:
    """The first reward (or result of `success`) of an episode without a value: its sample would be dropped."""
    counted = (signal for signal in episode.signals if signal.weight)
    return next((signal for signal in (*counted, *_success(episode)) if not signal.valid), None)


async def refusal(env: Env, task: Task, failed: Signal, seed: int, turns: int) -> str:
    """What is wrong with a reward without a value and, if the empty answer is the cause, what to return for one."""
    name = f"{type(env).__name__}.{failed.name}"
    text = f"{name} has no value: {failed.reason}"
    if await _is_from_silence(env, task, failed, seed, turns):
        text = (
            f"{name} has no value for an empty answer: {failed.reason}. A sample without a value is dropped, which "
            f"rewards a failing model: return {'False' if failed.name == 'success' else '0'}"
        )
    return f"{text}\n\n{failed.traceback}".rstrip()


async def _is_from_silence(env: Env, task: Task, failed: Signal, seed: int, turns: int) -> bool:
    """True if the same reward behaves differently for an answer that is not empty."""
    oracle = catch(env.oracle, task).value
    for policy in filter(None, (oracle, *((answer,) * turns for answer in ANSWERS))):
        most = 0 if policy is oracle else turns
        played = await acatch(asyncio.wait_for(aplay(env, (policy, policy), task, seed, most), ASK_S))
        if played.error is None and _kinds(played.value[0], failed.name) - {_kind(failed)}:
            return True
    return False


def _kinds(episode: Episode, name: str) -> set[str]:
    return {_kind(signal) for signal in (*episode.signals, *_success(episode)) if signal.name == name}


def _kind(signal: Signal) -> str:
    """The kind of result: a value, something unusable, or an error of some type."""
    if signal.valid:
        return "value"
    return signal.reason.partition(":")[0] if signal.traceback else "unusable"


def _success(episode: Episode) -> tuple[Signal, ...]:
    return (episode.success,) if episode.success else ()
