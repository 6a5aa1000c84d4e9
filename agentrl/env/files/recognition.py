"""What a file defines in place of an environment class."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache, partial
from types import FunctionType, ModuleType, new_class
from typing import Any, cast

from agentrl.env.base import Env
from agentrl.env.files.executor import ExecutorEnv
from agentrl.env.files.function import CoroutineEnv, FunctionEnv
from agentrl.env.files.openrlhf import MultiTurnAgentExecutor
from agentrl.env.files.results import PAGE
from agentrl.env.files.reward_function import RewardFunctionEnv
from agentrl.errors import ConfigError
from agentrl.plugins.kind import BOUND_NAME

ACCEPTED = "async def agent(task, ctx, model), or AgentExecutor, an AgentInstanceBase or reward_func of OpenRLHF"
AGENT, REWARD_FUNC = ("task", "ctx", "model"), ("queries", "prompts", "labels")


def environment_of(module: ModuleType, chosen: str = "") -> type[Env] | None:
    """Return the environment made from `chosen`, or from the first that the module has; None if there is none.

    Raises ConfigError for one that cannot be called as its contract says.
    """
    names = [chosen] if chosen else ["AgentExecutor", *_instances(module), "agent", "reward_func"]
    found = next(filter(None, (_made(module, name) for name in names)), None)
    if found is None and not chosen and inspect.isfunction(getattr(module, "step", None)):
        raise ConfigError(
            f"{module.__file__}: a function step is the contract of older versions of OpenRLHF: write it as the method "
            f"of an AgentInstanceBase, which has the observation, action_text and label in one dict ({PAGE})"
        )
    return found


@cache
def _made(module: ModuleType, name: str) -> type[Env] | None:
    """Return the environment made from an attribute of the module; None if it is nothing of this kind."""
    value: Any = getattr(module, name, None)
    where = f"{module.__file__}: {name}"
    if isinstance(value, type) and hasattr(value, "execute"):
        _check_class(where, value)
        for instance in _instances(module):
            _check_class(f"{module.__file__}: {instance}", getattr(module, instance))
        return _bound(module, ExecutorEnv, name, _make=staticmethod(value))
    if isinstance(value, type) and _is_instance(value):
        _check_class(where, value)
        return _bound(module, ExecutorEnv, name, _make=staticmethod(partial(MultiTurnAgentExecutor, value)))
    if inspect.isfunction(value) and (name == "agent" or _names(value) == AGENT):
        _check_call(where, value, *AGENT)
        base = CoroutineEnv if inspect.iscoroutinefunction(value) else FunctionEnv
        return _bound(module, base, name, _agent=staticmethod(value))
    if _is_called(value) and (name == "reward_func" or _names(value) == REWARD_FUNC):
        if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(type(value).__call__):
            raise ConfigError(f"{where} is async, but it is called without await: write def {name} ({PAGE})")
        _check_call(where, value, *REWARD_FUNC)
        return _bound(module, RewardFunctionEnv, name, _reward_func=staticmethod(value))
    return None


def _bound(module: ModuleType, base: type[Env], name: str, **members: Any) -> type[Env]:
    """Return a subclass that belongs to the file: with its docstring, under a name by which every process finds it."""
    value = getattr(module, name)
    doc = (isinstance(value, type | FunctionType) and value.__doc__) or ""
    bound = {"__doc__": doc, "__module__": module.__name__, "__qualname__": name}
    bound[BOUND_NAME] = f"{module.__file__}:{name}"
    return cast("type[Env]", new_class(name, (base,), exec_body=lambda body: body.update(bound | members)))


def _instances(module: ModuleType) -> Iterator[str]:
    """Yield the names of the classes of instances that the module itself defines."""
    for name, value in vars(module).items():
        if isinstance(value, type) and value.__module__ == module.__name__ and _is_instance(value):
            yield name


def _is_instance(value: type) -> bool:
    return "AgentInstanceBase" in [base.__name__ for base in value.__mro__[1:]]


def _is_called(value: Any) -> bool:
    """Return whether a value is a function, a `functools.partial` or another object that is called as one."""
    return callable(value) and not isinstance(value, type)


def _names(function: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)[:3]


def _check_class(where: str, value: Any) -> None:
    """Raise ConfigError unless the class can be made without arguments."""
    if inspect.iscoroutinefunction(value.__init__):
        raise ConfigError(f"{where}.__init__ is async, so no object can be made: write def __init__ ({PAGE})")
    if abstract := sorted(getattr(value, "__abstractmethods__", ())):
        raise ConfigError(f"{where} is abstract: define {' and '.join(abstract)} ({PAGE})")
    _check_call(where, value)


def _check_call(where: str, function: Any, *arguments: str) -> None:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        name = where.rpartition(" ")[2]
        raise ConfigError(f"{where} is called as {name}({', '.join(arguments)}): {error}") from None
