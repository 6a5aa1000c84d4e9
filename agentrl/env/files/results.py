"""What the methods and functions of a file return: dicts with texts, numbers, tensors, and signals from them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from agentrl.env.messages import short
from agentrl.errors import EnvError
from agentrl.types import Signal

LOGS = "extra_logs"
MAX_NESTED = 8
PAGE = "docs/migrate-from-openrlhf.md"


async def returned(result: Any, where: str, *keys: str) -> dict[str, Any]:
    """Await the result of a method: a dict with these keys. Raises EnvError for anything else."""
    if not inspect.isawaitable(result):
        name = where.rpartition(".")[2]
        raise EnvError(f"{where} returned {short(result)}, which cannot be awaited: write async def {name} ({PAGE})")
    found = await result
    if not isinstance(found, Mapping):
        raise EnvError(f"{where} returned {short(found)}; return a dict with {', '.join(map(repr, keys))} ({PAGE})")
    if missing := [key for key in keys if key not in found]:
        raise EnvError(f"{where} returned no {', '.join(missing)} ({PAGE})")
    return dict(found)


def number(value: Any) -> Any:
    """Return the number in a tensor, an array or a list of one element; any other value unchanged."""
    value = value.tolist() if hasattr(value, "tolist") else value
    for _ in range(MAX_NESTED):
        if not (isinstance(value, list | tuple) and len(value) == 1):
            break
        value = value[0]
        value = value.tolist() if hasattr(value, "tolist") else value
    return value


def fault(value: Any) -> str:
    """Return why a value is not one reward, as the end of a sentence; "" if it is one."""
    found = number(value)
    if found is None:
        return "is None: there is no reward"
    if isinstance(found, list | tuple) and len(found) != 1:
        return f"is {short(found)}: {len(found)} rewards for 1 answer"
    if not hasattr(found, "__float__"):
        return f"is {short(found)}, which is not a number"
    try:
        float(found)
    except OverflowError:
        return f"is {short(found)}, which is larger than any float"
    return ""


def is_given(value: Any) -> bool:
    """Return whether a value holds anything; a tensor or array does if it has elements."""
    return bool(value.numel() if hasattr(value, "numel") else getattr(value, "size", value))


def signals(result: Any, key: str, where: str) -> list[Signal]:
    """Return the reward under `key`, and scores and extra_logs as signals of weight 0."""
    if not isinstance(result, Mapping):
        return [_reward(result, where)]
    logged = [*_logged("scores", result.get("scores")), *_extra(result.get(LOGS))]
    return [_reward(result.get(key), f"{where}[{key!r}]"), *logged]


def _reward(value: Any, where: str) -> Signal:
    if wrong := fault(value):
        return Signal.invalid("reward", f"{where} {wrong}")
    return Signal("reward", number(value))


def _extra(logs: Any) -> Iterator[Signal]:
    """Yield a signal for each value; of a tensor with several its first, as OpenRLHF logs it."""
    for name, value in logs.items() if isinstance(logs, Mapping) else ():
        if hasattr(value, "flatten") and len(values := value.flatten()):
            value = values[0]
        yield from _logged(f"{LOGS}.{name}", value)


def _logged(name: str, value: Any) -> Iterator[Signal]:
    if value is not None:
        yield Signal(name, number(value), weight=0.0)
