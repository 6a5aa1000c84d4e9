"""What the class of an environment must be; what would be dropped in silence later is refused when it is written."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any

from agentrl.env.config import EnvConfig
from agentrl.env.doubled import doubled
from agentrl.env.driver.resources import Shared
from agentrl.env.limits import Limits
from agentrl.env.rewards import MARK as REWARD
from agentrl.env.rewards import Reward
from agentrl.env.tools import MARK as TOOL
from agentrl.env.tools import why_no_method
from agentrl.errors import ConfigError

HOOKS = {
    "preflight": (), "tasks": ("split",), "tools": ("ctx",), "setup": ("task", "ctx"), "respond": ("turn", "ctx"),
    "score": ("ctx",), "success": ("ctx",), "teardown": ("ctx",), "oracle": ("task",), "canaries": ("task",),
}  # fmt: skip
"""The author's methods and what each is called with."""
PLAIN = ("preflight", "oracle", "canaries")
FACE = {"reset": "setup", "step": "respond", "close": "teardown"}
NEAR = 0.7
"""How alike two names must be (`difflib`) for one to be a slip of the other: canary and canaries are 0.71."""
OWN = {"code", "config", "ctx", "limits", "resources", "blocking", "Config", "spec", "metadata", "np_random"}


def check_definition(env_class: type) -> None:
    """Raise one ConfigError with everything that a class body says and the framework could not honour."""
    if faults := list(faults_of(env_class)):
        raise ConfigError("\n".join(f"{env_class.__name__}: {fault}" for fault in faults))


def faults_of(env_class: type) -> Iterator[str]:
    """Each fault of what this class itself defines, its bases having been checked when they were written."""
    yield from _settings(vars(env_class))
    for name, value in vars(env_class).items():
        kind, function = mark_of(value), getattr(value, "__func__", value)
        if name in FACE:
            yield f"{name} is Gymnasium's face, which a run never calls: write {FACE[name]} instead"
        elif name in HOOKS:
            yield from _hook(name, value, kind)
        elif kind and name in OWN:
            yield f"@{kind} {name} has the name of something that every environment has; give it another"
        elif kind:
            yield from _marked(name, value, function, kind)
        else:
            yield from _unmarked(env_class, name, value)
            yield from _misspelled(env_class, name, value)
    yield from _unread_rewards(env_class)
    if lost := doubled(env_class):
        yield f"{', '.join(lost)} is defined twice, and Python keeps the last alone: give each its own name"


def mark_of(value: Any) -> str:
    """'reward', 'tool' or 'shared' for what a decorator of ours has marked, even under another decorator; else ''."""
    inner = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
    if isinstance(value, Shared):
        return "shared"
    return "reward" if hasattr(inner, REWARD) else "tool" if hasattr(inner, TOOL) else ""


def _settings(body: Any) -> Iterator[str]:
    schema, limits = body.get("Config", EnvConfig), body.get("limits", Limits())
    if not (isinstance(schema, type) and issubclass(schema, EnvConfig)):
        yield "Config must derive from agentrl.env.EnvConfig, which checks the --env.* keys"
    elif "name" in schema.model_fields:
        yield "Config.name cannot be set, for --env.name names the environment itself: call the key otherwise"
    if not (isinstance(limits, Limits) or hasattr(limits, "__get__")):
        yield f"limits is {limits!r}; write limits = Limits(max_turns=…)"
    if not isinstance(body.get("blocking", True), bool):
        yield f"blocking is {body['blocking']!r}; write True or False"


def _hook(name: str, value: Any, kind: str) -> Iterator[str]:
    """A method of the author's surface: a plain or async method that takes what it is called with."""
    function = getattr(value, "__func__", value)
    if kind:
        yield f"@{kind} {name}: {name} is a method that the framework calls itself; give the {kind} another name"
    elif not callable(function):
        yield f"{name} is a {type(value).__name__}; it must be a method"
    elif inspect.isasyncgenfunction(function) or (inspect.isgeneratorfunction(function) and name != "tasks"):
        yield f"{name} yields; it must return its result"
    elif inspect.iscoroutinefunction(function) and name in PLAIN:
        yield f"{name} is asked without a loop: write `def {name}` instead of `async def {name}`"
    elif fault := _call_fault(value, HOOKS[name]):
        yield f"{name} is called as {_call(name, HOOKS[name])}: {fault}"


def _marked(name: str, value: Any, function: Any, kind: str) -> Iterator[str]:
    """A `@reward` or `@tool` method: a method of the object, which rewards are asked with one argument."""
    if isinstance(value, classmethod | property):
        yield f"@{kind} {name} is a {type(value).__name__}, which would not be found; make it a method"
    elif kind != "shared" and (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
        yield f"@{kind} {name} yields; it must return its value"
    elif kind == "tool" and (fault := why_no_method(value)):
        yield f"@tool {name}: {fault}"
    elif isinstance(value, Shared) and (fault := _call_fault(value.make, ())):
        yield f"@shared {name} is called as {_call(name, ())}: {fault}"
    elif isinstance(reward := getattr(function, REWARD, None), Reward):
        wanted = ("episodes",) if reward.scope == "group" else ("ctx",)
        if fault := _call_fault(value, wanted) or _context_fault(function, reward):
            yield f"@reward {name} of scope {reward.scope!r} is called as {_call(name, wanted)}: {fault}"


def _unmarked(env_class: type, name: str, value: Any) -> Iterator[str]:
    """A method that takes the place of a marked one and would be dropped: the mark is not inherited."""
    if callable(value) and (kind := mark_of(getattr(super(env_class, env_class), name, None))):
        yield f"{name} takes the place of a @{kind} of a base class: decorate it again, or write {name} = None"


def _misspelled(env_class: type, name: str, value: Any) -> Iterator[str]:
    """A name that the framework never reads, for something that it reads under another."""
    meant = "" if name.startswith("_") else _meant(name, value)
    if meant and not any(meant in vars(base) for base in _authors(env_class)):
        yield f"nothing reads {name}. Did you mean {meant!r}? If it is your own, give it another name, such as _{name}"


def _meant(name: str, value: Any) -> str:
    """What an author means by this value: by its type, or by a name that is nearly that of a hook it could be."""
    if isinstance(value, Limits):
        return "limits"
    if isinstance(value, type) and issubclass(value, EnvConfig):
        return "Config"
    known = ["blocking"] if isinstance(value, bool) else []
    if inspect.isroutine(value):
        known = [hook for hook, arguments in HOOKS.items() if not _call_fault(value, arguments)]
    alike = [other for other in known if other[0] == name[0]]
    return next(iter(difflib.get_close_matches(name, alike, n=1, cutoff=NEAR)), "")


def _authors(env_class: type) -> list[type]:
    """The classes that come before Env itself: this one, its bases and mix-ins."""
    return list(takewhile(lambda base: base.__module__ != "agentrl.env.base", env_class.__mro__))


def _unread_rewards(env_class: type) -> Iterator[str]:
    """`score` says all that an episode is worth: the `@reward` methods of that scope beside it would not be asked."""
    if not any("score" in vars(base) for base in _authors(env_class)):
        return
    marks = {name: getattr(value, REWARD, None) for name, value in vars(env_class).items()}
    if unread := [name for name, mark in marks.items() if isinstance(mark, Reward) and mark.scope == "episode"]:
        yield f"@reward {', '.join(unread)} would not be asked, for score is written: keep one of the two"


def _call_fault(value: Any, arguments: tuple[str, ...]) -> str:
    """Why a method cannot be called with these arguments, '' when it can."""
    function: Callable[..., Any] = getattr(value, "__func__", value)
    bound = arguments if isinstance(value, staticmethod) else ("self", *arguments)
    try:
        inspect.signature(function).bind(*bound)
    except TypeError as error:
        return str(error)
    except ValueError:  # a callable that tells no signature
        return ""
    return ""


def _context_fault(function: Callable[..., Any], reward: Reward) -> str:
    """Why a group's reward would take its episodes for something else, '' when it would not."""
    is_context = reward.scope == "group" and "ctx" in function.__code__.co_varnames[: function.__code__.co_argcount]
    return "it takes the finished episodes of a task, and there is no ctx" if is_context else ""


def _call(name: str, arguments: tuple[str, ...]) -> str:
    return f"{name}({', '.join(arguments)})"
