"""Rewards: methods that judge, and the signals they become."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar, overload

from agentrl.env.tools import marked
from agentrl.types import Scope, Signal

F = TypeVar("F", bound=Callable[..., Any])
MARK = "__agentrl_reward__"


@dataclass(frozen=True, slots=True)
class Reward:
    """How the value of one `@reward` method counts."""

    name: str
    weight: float
    scope: Scope
    verifier: str = ""

    def signal(self, value: Any, turn: int | None = None) -> Signal:
        """The signal of a value the method returned; one that is no finite number is invalid, never 0."""
        return filled(self._blank(turn), value)

    def invalid(self, reason: str, turn: int | None = None) -> Signal:
        """The signal of a method that failed."""
        return invalid(self._blank(turn), reason)

    def _blank(self, turn: int | None) -> Signal:
        return Signal(self.name, None, self.weight, self.scope, verifier=self.verifier, turn=turn)


@overload
def reward(method: F, /) -> F: ...
@overload
def reward(*, weight: float = 1.0, scope: Scope = "episode") -> Callable[[F], F]: ...
def reward(method: F | None = None, /, *, weight: float = 1.0, scope: Scope = "episode") -> Any:
    """Count this method's value, a number or a Signal, as a reward.

    `scope`: "episode" and "turn" methods take the context, "turn" ones after each turn; a "group" method takes the
    finished episodes of one task and returns one value for each. A weight of 0 records without counting.
    """

    def mark(method: F) -> F:
        setattr(method, MARK, Reward(method.__name__, weight, scope))
        return method

    return mark if method is None else mark(method)


@cache
def rewards_of(env_class: type, scope: Scope) -> tuple[Reward, ...]:
    """The rewards of one scope, in the order they were written; found once per class."""
    found = [
        replace(getattr(method, MARK), name=name, verifier=f"{env_class.__name__}.{name}")
        for name, method in marked(env_class, MARK)
    ]
    return tuple(reward for reward in found if reward.scope == scope)


def as_signals(result: Any, verifier: str) -> tuple[Signal, ...]:
    """What `score` returned, a number, a Signal or several Signals, as signals."""
    if isinstance(result, Sequence) and not isinstance(result, str):
        return tuple(filled(Signal("score", None, verifier=verifier), item, keep=True) for item in result)
    return (filled(Signal("score", None, verifier=verifier), result, keep=True),)


def filled(blank: Signal, value: Any, keep: bool = False) -> Signal:
    """`blank` with a value; a Signal brings its own value, validity and evidence (and, with `keep`, all the rest)."""
    if isinstance(value, Signal):
        merged = value if keep else replace(value, name=blank.name, weight=blank.weight, scope=blank.scope)
        merged = replace(merged, turn=blank.turn, verifier=value.verifier or blank.verifier)
        return checked(merged) if merged.valid else merged
    if isinstance(value, int | float) or hasattr(value, "__float__"):
        return checked(replace(blank, value=float(value)))
    return invalid(blank, f"returned {value!r}; return a number or a Signal")


def checked(signal: Signal) -> Signal:
    """The signal itself, or an invalid one when its value is not a finite number."""
    if signal.value is None or not math.isfinite(signal.value):
        return invalid(signal, f"the value is {signal.value}")
    return signal


def invalid(signal: Signal, reason: str) -> Signal:
    """The same signal without a value."""
    return replace(signal, value=None, valid=False, reason=reason)
