"""Samples made by hand: an author tries `credit` on them, and every run does before anything heavy starts."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from copy import copy
from typing import get_args

import numpy as np

from agentrl.algorithms.base import Algorithm
from agentrl.algorithms.driver import assign
from agentrl.algorithms.sample import Column, Sample
from agentrl.errors import ConfigError, CreditError, catch
from agentrl.plugins.tracebacks import defined_at
from agentrl.types import Message, SampleId, Segment, Signal, StopReason, TokenSequence, Trajectory

GROUPS = 2


def by_hand(
    rewards: Sequence[float],
    *,
    turns: int = 2,
    tokens: int = 3,
    columns: Collection[Column] = get_args(Column),
    greedy: int = 1,
) -> list[Sample]:
    """Return a group of samples, one for each reward of an episode, with `tokens` sampled tokens in each turn.

    The values of `columns` are random and the same in every call. The group has `greedy` greedy members as baselines.
    """
    random, size = np.random.default_rng(0), len(rewards)
    baselines = tuple(Sample.of(_episode(size + number, 0.0, turns, tokens)) for number in range(greedy))
    group = [Sample.of(_episode(member, reward, turns, tokens), baselines) for member, reward in enumerate(rewards)]
    for sample in group:
        sample.columns = {name: -random.random(len(sample)) for name in columns}
        for values in sample.columns.values():
            values.flags.writeable = False
    return group


def rehearse(algorithm: Algorithm) -> None:
    """Try the methods of an algorithm. Raises ConfigError for a mistake that every batch would meet.

    What may depend on real episodes, such as a KeyError for a signal that these do not have, is no mistake here.
    """
    for method, argument in ((algorithm.credit, []), (algorithm.after, None), (algorithm.loss, None)):
        if error := catch(inspect.signature(method).bind, argument).error:
            where = f"{algorithm.name}: {method.__name__}{defined_at(method)}"
            raise ConfigError(f"{where} is called with one argument: {error}")
    trial, needs = copy(algorithm), algorithm.requirements
    trial.state = dict(algorithm.state)
    rewards = np.linspace(0, 1, algorithm.run.group_size).tolist()
    groups = [by_hand(rewards, columns=needs.columns, greedy=needs.greedy) for _ in range(GROUPS)]
    error = catch(assign, trial, groups).error
    if error is not None and _is_mistake(error, trial):
        raise ConfigError(f"{error} (found with samples made by hand, before the run)") from error


def _is_mistake(error: Exception, algorithm: Algorithm) -> bool:
    """Return whether an error does not depend on the episodes: unusable credit or keys, an unknown name or attribute.

    An attribute that a `Sample` lacks is one too, and so is a change of what credit may only read, a call with other
    arguments, and a sample, a method or the keys where something else is needed.
    """
    cause = error.__cause__
    if isinstance(cause, TypeError):
        ours = (f"'{kind}'" for kind in (Sample.__name__, "method", type(algorithm.config).__name__))
        return any(part in str(cause) for part in (*ours, "() takes ", "() missing ", "() got an unexpected "))
    if isinstance(cause, AttributeError):
        return cause.obj is not None or str(cause).startswith(f"{Sample.__name__!r} object")
    if isinstance(cause, ValueError) and "read-only" in str(cause):
        return True
    return isinstance(cause, NameError | ImportError) or isinstance(error, CreditError | ConfigError)


def _episode(member: int, reward: float, turns: int, tokens: int) -> Trajectory:
    segments: list[Segment] = []
    messages: list[Message] = []
    for turn in range(turns):
        segments += [Segment((0,), is_action=False, turn=turn)]
        segments += [Segment((1,) * tokens, is_action=True, logprobs=(-1.0,) * tokens, turn=turn)]
        messages += [{"role": "user", "content": f"state {turn}"}, {"role": "assistant", "content": "reply"}]
    return Trajectory(
        SampleId(0, member),
        attempt=0,
        split="train",
        task_index=0,
        task_id="0",
        sequences=(TokenSequence(tuple(segments)),),
        messages=tuple(messages),
        signals=(Signal("reward", reward),),
        stop_reason=StopReason.ENV_DONE,
        turns=turns,
    )
