"""Rewards: scoring methods and their signals."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeGuard, TypeVar, get_args, overload

import numpy as np

from agentrl.env.messages import short
from agentrl.env.tools import marked
from agentrl.errors import ConfigError, did_you_mean
from agentrl.plugins.tracebacks import describe_error, traced
from agentrl.types import Scope, Signal
from agentrl.types.trajectory import TRACEBACK

F = TypeVar("F", bound=Callable[..., Any])
MARK = "__agentrl_reward__"
SCOPES: tuple[Scope, ...] = get_args(Scope)
LARGEST = 1e9
"""Maximum of a weighted value: beyond it, float32 in the learner cannot represent differences between rewards."""


@dataclass(frozen=True, slots=True)
class Reward:
    """One `@reward` method: its name, weight and scope."""

    name: str
    weight: float
    scope: Scope
    verifier: str = ""

    def blank(self, turn: int | None = None) -> Signal:
        """Return a signal without a value yet."""
        return Signal(self.name, None, self.weight, self.scope, verifier=self.verifier, turn=turn)


@overload
def reward(method: F, /) -> F: ...
@overload
def reward(*, weight: float = 1.0, scope: Scope = "episode") -> Callable[[F], F]: ...
def reward(method: F | None = None, /, *, weight: float = 1.0, scope: Scope = "episode") -> Any:
    """Mark a method whose value, a number or a Signal, is a reward.

    `scope`: "episode" methods take the context of the finished episode and may also return Signals of its turns;
    "turn" methods take the context after each turn; a "group" method takes the finished episodes of one task and
    returns one value for each, or NotImplemented if the environment, as it is configured, has no such reward.
    A reward of weight 0 is recorded but does not count.
    """

    if scope not in SCOPES:
        raise ConfigError(f"@reward(scope={scope!r}): unknown scope.{did_you_mean(str(scope), SCOPES)}")
    if not is_number(weight):
        raise ConfigError(f"@reward(weight={short(weight)}): a weight is a finite number")

    def mark(method: F) -> F:
        if not inspect.isfunction(method):
            raise ConfigError(f"@reward on {method!r}: it marks a plain method; options are named, @reward(weight=0.5)")
        setattr(method, MARK, Reward(method.__name__, float(weight), scope))
        return method

    return mark if method is None else mark(method)


@cache
def rewards_of(env_class: type, scope: Scope) -> tuple[Reward, ...]:
    """Return the rewards of one scope, in the order of definition; found once per class."""
    found = [
        replace(getattr(method, MARK), name=name, verifier=f"{env_class.__name__}.{name}")
        for name, method in marked(env_class, MARK)
    ]
    return tuple(reward for reward in found if reward.scope == scope)


def as_signals(blank: Signal, result: Any, speakers: Sequence[str], keep: bool = False) -> tuple[Signal, ...]:
    """Return the signals of an episode from the result of `score` (`keep`) or of a `@reward` method.

    The result is a number or a Signal. `score` may return several, a `@reward` method several Signals of turns.
    `speakers` has the agent of each turn.
    """
    is_many = isinstance(result, Sequence) and not isinstance(result, str) and (keep or _are_of_turns(result))
    return tuple(filled(blank, item, speakers, keep) for item in (result if is_many else [result]))


def _are_of_turns(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(value, Signal) and value.scope == "turn" for value in values)


def filled(blank: Signal, value: Any, speakers: Sequence[str] = (), keep: bool = False) -> Signal:
    """Return `blank` with a value, or invalid if that is not a finite number.

    A Signal keeps its value, validity and evidence; with `keep`, also its name, weight and scope. After an episode
    it may be the signal of one turn; `speakers` has the agent of each.
    """
    if not isinstance(value, Signal):
        return counted(blank, value)
    merged = replace(value, verifier=value.verifier or blank.verifier)
    if not keep:
        merged = replace(merged, name=blank.name, weight=blank.weight)
    if blank.scope != "episode" or not (keep or value.scope == "turn"):
        merged = replace(merged, scope=blank.scope, turn=blank.turn)
    found = dict(unusable(merged, speakers, blank.scope))
    reason = "; ".join(
        f"Signal.{field} is {short(getattr(merged, field))}; give {what}" for field, what in found.items()
    )
    merged = replace(merged, **{field: getattr(blank, field) for field in found})
    turn = None if merged.turn is None else int(merged.turn)
    merged = replace(merged, weight=float(merged.weight), valid=bool(merged.valid), turn=turn)
    if reason:
        return invalid(merged, reason)
    return counted(merged, merged.value) if merged.valid else replace(merged, value=None)


def unusable(signal: Signal, speakers: Sequence[str], scope: Scope) -> Iterator[tuple[str, str]]:
    """Yield the fields of an author's signal whose values cannot be used, each with what belongs there.

    `scope` is that of the method. Only a reward of groups knows the other episodes.
    """
    texts = ("name", "reason", "verifier")
    yield from ((field, "text") for field in texts if not isinstance(getattr(signal, field), str))
    if not is_number(signal.weight):
        yield "weight", "a finite number"
    scopes = [known for known in SCOPES if (known == "group") == (scope == "group")]
    if signal.scope not in scopes:
        yield "scope", " or ".join(map(repr, scopes))
    if signal.scope != "turn" and signal.turn is not None:
        yield "turn", "it the scope 'turn'"
    if signal.scope == "turn" and not (_is_index(signal.turn) and signal.turn < len(speakers)):
        yield "turn", f"an index below {len(speakers)}, the number of the policy's turns"
    if signal.agent and signal.agent not in speakers:
        yield "agent", "'' or the name of an agent that takes turns"
    if not isinstance(signal.valid, bool | np.bool_):
        yield "valid", "True or False"


def _is_index(value: Any) -> TypeGuard[int]:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 0)


def counted(signal: Signal, value: Any) -> Signal:
    """Return the signal with this value as a float, or an invalid signal if it is not a finite number to train on."""
    if inspect.iscoroutine(value):
        value.close()
        return invalid(signal, f"returned a coroutine of {value.__qualname__}, which is not awaited; write await")
    if not (isinstance(value, int | float) or hasattr(value, "__float__")):
        return invalid(signal, f"returned {short(value)}; return a number or a Signal")
    try:
        number = float(value)
    except (TypeError, ValueError, ArithmeticError, RuntimeError) as error:  # torch raises RuntimeError
        return invalid(signal, f"returned {short(value)}, which is not a single number: {error}")
    if not math.isfinite(number):
        return invalid(signal, f"the value is {number}")
    if abs(signal.weight * number) > LARGEST:
        return invalid(signal, f"the value is {number:g} at weight {signal.weight:g}; a reward is at most {LARGEST:g}")
    return replace(signal, value=number)


def invalid(signal: Signal, reason: str) -> Signal:
    """Return the same signal without a value."""
    return replace(signal, value=None, valid=False, reason=reason)


def failed(signal: Signal, error: BaseException) -> Signal:
    """Return the same signal without a value, with the traceback as evidence."""
    return replace(invalid(signal, describe_error(error)), evidence={TRACEBACK: traced(error)})


def is_number(value: Any) -> bool:
    """True for a finite number that a float can hold, those of numpy included, but not for a bool."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def passes(signals: Iterable[Signal]) -> bool:
    """Return whether the rewards reach half of the sum of their positive weights, each reward counting as at most 1.

    The rewards of the whole episode decide (scopes episode and group). Turn rewards are intermediate steps, which could
    add up to a pass without a result: they decide only if nothing else is paid, with each weight counted once.
    """
    counted = [s for s in signals if s.weight and s.value is not None]
    whole = [s for s in counted if not _is_turns(s)]
    deciding = whole if any(s.weight > 0 for s in whole) else counted
    of_turns = {s.name: s.weight for s in deciding if _is_turns(s)}
    weights = [*of_turns.values(), *(s.weight for s in deciding if not _is_turns(s))]
    return sum(s.weight * (s.value or 0.0) for s in deciding) >= 0.5 * sum(w for w in weights if w > 0) > 0


def _is_turns(signal: Signal) -> bool:
    return signal.scope == "turn" and signal.turn is not None
