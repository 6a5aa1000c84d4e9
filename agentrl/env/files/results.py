"""Signals from what the functions of a file return: numbers, tensors, and dicts of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentrl.types import Signal

LOGS = "extra_logs"


def number(value: Any) -> Any:
    """Return the number in a tensor, an array or a list of one element; any other value unchanged."""
    value = value.tolist() if hasattr(value, "tolist") else value
    while isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
        value = value.tolist() if hasattr(value, "tolist") else value
    return value


def signals(result: Any, key: str, where: str) -> list[Signal]:
    """Return the reward under `key`, and scores and extra_logs as signals of weight 0."""
    if not isinstance(result, Mapping):
        return [_reward(result, where)]
    logged = [*_logged("scores", result.get("scores")), *_extra(result.get(LOGS))]
    return [_reward(result.get(key), f"{where}[{key!r}]"), *logged]


def _reward(value: Any, where: str) -> Signal:
    if value is None:
        return Signal.invalid("reward", f"{where} is None: there is no reward")
    return Signal("reward", number(value))


def _extra(logs: Any) -> Iterator[Signal]:
    for name, value in logs.items() if isinstance(logs, Mapping) else ():
        yield from _logged(f"{LOGS}.{name}", value)


def _logged(name: str, value: Any) -> Iterator[Signal]:
    if value is not None:
        yield Signal(name, number(value), weight=0.0)
