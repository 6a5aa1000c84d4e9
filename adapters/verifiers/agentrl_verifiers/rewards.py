"""Reward functions of verifiers 0.3 whose failures are known: its rubrics turn every failure into 0."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from agentrl.errors import acatch

FAILURES: ContextVar[dict[str, Exception]] = ContextVar("FAILURES")
"""What the reward functions raised while a rubric scores, by their names."""
MARK = "__agentrl_watched__"


@contextmanager
def failures() -> Iterator[dict[str, Exception]]:
    """Collect what the watched reward functions raise in the body, in this task and in those that it starts."""
    found: dict[str, Exception] = {}
    token = FAILURES.set(found)
    try:
        yield found
    finally:
        FAILURES.reset(token)


def watch(rubric: Any) -> None:
    """Let every reward function of a rubric, and of those in it, report what it raises."""
    for part in getattr(rubric, "rubrics", ()):
        watch(part)
    rubric.funcs = [watched(function) for function in rubric.funcs]


def weighed(rubric: Any) -> Iterator[tuple[Callable[..., Any], float]]:
    """Yield the reward functions of a rubric, and of those in it, with their weights."""
    for part in getattr(rubric, "rubrics", ()):
        yield from weighed(part)
    yield from zip(rubric.funcs, rubric.weights, strict=False)


def decisive(rubric: Any, failed: Container[str]) -> set[str]:
    """Return the names of the failed functions that the reward of a rubric rests on.

    These have a weight, or may have left in the state what a function with a weight reads there: so verifiers'
    HybridMathRubric takes the verdict of its judge, which has weight 0.
    """
    functions = list(weighed(rubric))
    is_read = any(weight and _has_state(function) for function, weight in functions)
    return {
        function.__name__
        for function, weight in functions
        if function.__name__ in failed and (weight or (is_read and _has_state(function)))
    }


def _has_state(function: Callable[..., Any]) -> bool:
    return not inspect.signature(function).parameters.keys().isdisjoint(("state", "states"))


def watched(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reward function with the same signature that reports its failure, or a value that is no number."""
    if hasattr(function, MARK):
        return function

    @wraps(function)
    async def call(*args: Any, **keywords: Any) -> Any:
        outcome = await acatch(_valued(function, args, keywords))
        if outcome.error is not None:
            FAILURES.get({})[call.__name__] = outcome.error
            raise outcome.error
        return outcome.value

    setattr(call, MARK, True)
    return call


async def _valued(function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    value = function(*args, **keywords)
    if inspect.isawaitable(value):
        value = await value
    is_many = isinstance(value, list | tuple)
    numbers = [float(one) for one in (value if is_many else [value])]
    if not all(map(math.isfinite, numbers)):  # of weight 0 too, it makes the sum no number
        raise ValueError(f"the value is {value}")
    return numbers if is_many else numbers[0]
