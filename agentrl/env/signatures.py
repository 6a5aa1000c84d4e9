"""How agentrl calls an author's methods, and what is wrong with one that it cannot call."""

from __future__ import annotations

import inspect
from typing import Any

from agentrl.env.messages import short
from agentrl.env.rewards import MARK as REWARD
from agentrl.env.roles import DeclaredRole
from agentrl.env.sharing import Shared
from agentrl.env.tools import MARK as TOOL
from agentrl.env.tools import unwrapped, why_no_method

HOOKS = {
    "preflight": (), "tasks": ("split",), "tools": ("ctx",), "setup": ("task", "ctx"), "respond": ("turn", "ctx"),
    "play": ("task", "ctx", "model"), "score": ("ctx",), "success": ("ctx",), "teardown": ("ctx",),
    "oracle": ("task",), "canaries": ("task",),
}  # fmt: skip
"""The author's methods and their arguments."""
PLAIN = ("preflight", "oracle", "canaries")
"""The methods that are called without an event loop."""


def mark_of(value: Any) -> str:
    """'reward', 'tool', 'role' or 'shared' for what our decorators marked, even below another one; otherwise ''."""
    inner = unwrapped(value)
    if isinstance(inner, Shared):
        return "shared"
    if isinstance(inner, DeclaredRole):
        return "role"
    return "reward" if hasattr(inner, REWARD) else "tool" if hasattr(inner, TOOL) else ""


def hook_fault(name: str, value: Any) -> str:
    """Return what is wrong with a class attribute as the method `name`; '' if nothing is."""
    function = getattr(value, "__func__", value)
    if not callable(function):
        return f"is {short(value)}; it must be a method"
    if inspect.iscoroutinefunction(function) and name in PLAIN:
        return f"is called without an event loop: write `def {name}` instead of `async def {name}`"
    if name == "tasks" and inspect.isasyncgenfunction(function):
        return "yields in an async method: write `def tasks`, which may yield, or return a list"
    return (name != "tasks" and generator_fault(function)) or call_fault(name, value, HOOKS[name])


def marked_fault(name: str, value: Any) -> str:
    """Return what is wrong with a `@reward`, `@tool`, `@role` or `@shared` method; '' if nothing is."""
    if unwrapped(value) is not value:
        kind = type(value).__name__
        return f"is a {kind}, and agentrl reads methods only: remove @{kind}"
    if isinstance(value, Shared):
        if generator_fault(value.make):
            prefix = "async" if inspect.isasyncgenfunction(value.make) else ""
            return f"yields: write @contextlib.{prefix}contextmanager below @shared"
        return call_fault(name, value.make, ())
    if isinstance(value, DeclaredRole):
        return generator_fault(value.stand_in) or call_fault(name, value.stand_in, ("messages",))
    mark = getattr(value, REWARD, None)
    if mark is None:
        return generator_fault(value) or why_no_method(value)
    if hasattr(value, TOOL):
        return "is a @tool too; choose one"
    if mark.scope == "group" and "ctx" in inspect.signature(value).parameters:
        return f"has scope 'group' and takes finished episodes instead of ctx: write def {name}(self, episodes)"
    return generator_fault(value) or call_fault(name, value, ("episodes",) if mark.scope == "group" else ("ctx",))


def generator_fault(function: Any) -> str:
    """Return what is wrong with a generator function; '' for any other function."""
    is_generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    return "yields; it must return its result" if is_generator else ""


def call_fault(name: str, value: Any, arguments: tuple[str, ...]) -> str:
    """Return why a method cannot be called with these arguments; '' if it can."""
    bound = arguments if isinstance(value, staticmethod) else ("self", *arguments)
    try:
        signature = inspect.signature(getattr(value, "__func__", value))
        signature.bind(*bound)
    except TypeError as error:
        return f"is called as {name}({', '.join(arguments)}): {error}"
    except ValueError:  # a callable without a signature
        return ""
    named = [(index, other) for index, other in enumerate(signature.parameters) if other in arguments]
    is_moved = any(bound.index(other) != index for index, other in named)
    return f"is called as {name}({', '.join(arguments)}): name the parameters in this order" if is_moved else ""
