"""Rules for the class of an environment: what the framework could not honour is rejected when the class is made."""

from __future__ import annotations

import ast
import difflib
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from textwrap import dedent
from typing import Any

from agentrl.env.config import EnvConfig, Limits
from agentrl.env.context import Context
from agentrl.env.rewards import MARK as REWARD
from agentrl.env.rewards import Reward
from agentrl.env.sharing import Shared
from agentrl.env.tools import MARK as TOOL
from agentrl.env.tools import unwrapped, why_no_method
from agentrl.env.tracebacks import defined_at
from agentrl.errors import ConfigError

HOOKS = {
    "preflight": (), "tasks": ("split",), "tools": ("ctx",), "setup": ("task", "ctx"), "respond": ("turn", "ctx"),
    "score": ("ctx",), "success": ("ctx",), "teardown": ("ctx",), "oracle": ("task",), "canaries": ("task",),
}  # fmt: skip
"""The author's methods and their arguments."""
PLAIN = ("preflight", "oracle", "canaries")
SETTINGS = {"Config", "limits", "blocking"}
GYMNASIUM = {"reset": "setup", "step": "respond", "close": "teardown"}
"""Methods of Gymnasium's interface, which belong to `GymnasiumEnv`, and the hooks that do their work."""
RESERVED = {
    "config", "ctx", "code", "resources", *GYMNASIUM,
    "render", "metadata", "spec", "observation_space", "action_space", "np_random", "unwrapped",
}  # fmt: skip
"""Names that mean something else to agentrl or to users of Gymnasium."""
OURS = {"config": EnvConfig, "ctx": Context}
"""Attributes that agentrl sets on an object, besides the values of `@shared`."""
NEAR = 0.7
"""Similarity (`difflib`) from which a name counts as a misspelling of another: canary and canaries have 0.71."""
SHARED_NAME = ("setter", "getter", "deleter", "overload")
"""Decorators of definitions that have the same name on purpose."""


def check_definition(env_class: type) -> None:
    """Raise one ConfigError with every fault of a class body."""
    if faults := list(faults_of(env_class)):
        raise ConfigError("\n".join(f"{env_class.__name__}: {fault}" for fault in faults))


def check_object(env: Any, method: str, **own: Any) -> None:
    """Raise ConfigError if attributes of an object hide what agentrl calls, or replace `own`, which agentrl set.

    `method` is the author's method that ran last.
    """
    if faults := list(_object_faults(env, method, own)):
        where = f"{type(env).__name__}{defined_at(getattr(type(env), method))}"
        raise ConfigError("\n".join(f"{where} {fault}" for fault in faults))


def _object_faults(env: Any, method: str, own: dict[str, Any]) -> Iterator[str]:
    config = vars(env).get("config")
    if method == "__init__" and not (isinstance(config, EnvConfig) and config is own.get("config", config)):
        yield _lost_config(type(env))
        return
    for name, value in vars(env).items():
        kind = mark_of(inspect.getattr_static(type(env), name, None))
        is_reserved = name in HOOKS.keys() | RESERVED
        what = "reserved by agentrl" if is_reserved else f"a @{kind} of the class"
        is_taken = is_reserved or name in own or kind in ("reward", "tool")
        is_ours = value is own[name] if name in own else isinstance(value, OURS.get(name, ()))
        if is_taken and not is_ours:
            yield f"sets self.{name} in {method}: `{name}` is {what}; rename it, for example self.my_{name}"
    yield from _settings({"limits": env.limits, "blocking": env.blocking})


def _lost_config(env_class: type) -> str:
    if is_dataclass(env_class):
        return "loses its config, because a dataclass replaces __init__: remove @dataclass, and write class Config"
    return (
        "loses its config: write def __init__(self, config=None, **options), "
        "and super().__init__(config, **options) in it"
    )


def faults_of(env_class: type) -> Iterator[str]:
    """Faults of what this class and its mix-ins define; its bases that are environments were checked when made."""
    members = members_of(env_class)
    yield from _settings({name: value for name, (_, value) in members.items()})
    for name, (owner, value) in members.items():
        kind = mark_of(value)
        if name in RESERVED or (kind and name in HOOKS.keys() | SETTINGS):
            yield _reserved(name, kind)
        elif name in HOOKS:
            yield from _hook(name, value)
        elif kind:
            yield from _marked(name, value, kind)
        else:
            yield from _unmarked(owner, env_class, name, value)
            yield from _misspelled(env_class, name, value)
    yield from _unread_rewards(env_class)


def members_of(env_class: type) -> dict[str, tuple[type, Any]]:
    """Return what a class and its mix-ins define and no other class replaces: by name, the definer and the value."""
    mixins = [base for base in env_class.__mro__[1:] if _is_mixin(base)]
    found = {name: (owner, value) for owner in (*mixins[::-1], env_class) for name, value in vars(owner).items()}
    return {
        name: (owner, value)
        for name, (owner, value) in found.items()
        if not (name.startswith("__") and name.endswith("__")) and inspect.getattr_static(env_class, name) is value
    }


def _is_mixin(base: type) -> bool:
    is_env = any(parent.__module__ == "agentrl.env.base" for parent in base.__mro__)
    return not is_env and base.__module__.partition(".")[0] not in sys.stdlib_module_names


def duplicate_methods(env_class: type) -> Iterator[str]:
    """Methods that a class body or its author's bases define twice, as 'Mine.a (mine.py:12)'; reads their source."""
    for owner in authors_classes(env_class):
        try:
            lines, first = inspect.getsourcelines(owner)
            [body] = ast.parse(dedent("".join(lines))).body
        except (OSError, TypeError, SyntaxError, ValueError):
            continue
        methods = [n for n in getattr(body, "body", []) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        methods = [method for method in methods if not any(map(_shares_name, method.decorator_list))]
        counts = Counter(method.name for method in methods)
        last = {method.name: first + method.lineno - 1 for method in methods}
        file = Path(inspect.getfile(owner)).name
        yield from (f"{owner.__name__}.{name} ({file}:{last[name]})" for name in counts if counts[name] > 1)


def authors_classes(env_class: type) -> list[type]:
    """Return the classes before Env in the method resolution order: this one, its bases and mix-ins."""
    return list(takewhile(lambda base: base.__module__ != "agentrl.env.base", env_class.__mro__))


def mark_of(value: Any) -> str:
    """'reward', 'tool' or 'shared' for what our decorators marked, even below another decorator; otherwise ''."""
    inner = unwrapped(value)
    if isinstance(inner, Shared):
        return "shared"
    return "reward" if hasattr(inner, REWARD) else "tool" if hasattr(inner, TOOL) else ""


def _reserved(name: str, kind: str) -> str:
    if not kind and name in GYMNASIUM:
        return f"{name} belongs to Gymnasium's interface, which a run never calls; write {GYMNASIUM[name]} instead"
    owner, what = (f"@{kind} {name}", "the method") if kind else (name, "it")
    example = f"{name}_{kind}" if kind else f"my_{name}"
    return f"{owner}: `{name}` is reserved by agentrl; rename {what}, for example {example}"


def _settings(body: Any) -> Iterator[str]:
    schema, limits = body.get("Config", EnvConfig), body.get("limits", Limits())
    if not (isinstance(schema, type) and issubclass(schema, EnvConfig)):
        yield "Config must derive from agentrl.env.EnvConfig, which checks the --env.* keys"
    elif "name" in schema.model_fields:
        yield "Config.name cannot be set, because --env.name selects the environment; rename the key"
    if not isinstance(limits, Limits | property | cached_property):
        yield f"limits is {limits!r}; write limits = Limits(max_turns=…)"
    if not isinstance(body.get("blocking", True), bool):
        yield f"blocking is {body['blocking']!r}; write True or False"


def _hook(name: str, value: Any) -> Iterator[str]:
    """Faults of an author's method: it must be plain or async, and accept its arguments."""
    function = getattr(value, "__func__", value)
    if not callable(function):
        yield f"{name} is {a_kind(value)}; it must be a method"
    elif inspect.isasyncgenfunction(function) or (inspect.isgeneratorfunction(function) and name != "tasks"):
        yield f"{name} yields; it must return its result"
    elif inspect.iscoroutinefunction(function) and name in PLAIN:
        yield f"{name} is called without an event loop: write `def {name}` instead of `async def {name}`"
    elif fault := _call_fault(value, HOOKS[name]):
        yield f"{name} is called as {_call(name, HOOKS[name])}: {fault}"


def _marked(name: str, value: Any, kind: str) -> Iterator[str]:
    """Faults of a `@reward`, `@tool` or `@shared` method."""
    function = unwrapped(value)
    if function is not value:
        yield f"@{kind} {name} is {a_kind(value)}, and agentrl reads methods only: remove @{type(value).__name__}"
    elif hasattr(function, REWARD) and hasattr(function, TOOL):
        yield f"@reward @tool {name} is both; choose one"
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


def a_kind(value: Any) -> str:
    """'a dict', 'an int'."""
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _unmarked(owner: type, env_class: type, name: str, value: Any) -> Iterator[str]:
    """Report a method that overrides a marked one and would be ignored, because marks are not inherited."""
    if callable(value) and (kind := mark_of(getattr(super(owner, env_class), name, None))):
        yield f"{name} overrides a @{kind} of a base class: decorate it too, or write {name} = None"


def _misspelled(env_class: type, name: str, value: Any) -> Iterator[str]:
    """Report a name that the framework never reads, for a value that it reads under another name."""
    meant = "" if name.startswith("_") else _meant(name, value)
    if meant and not any(meant in vars(base) for base in authors_classes(env_class)):
        yield f"{name} has no effect. Did you mean {meant!r}? If it is your own, rename it, for example _{name}"


def _meant(name: str, value: Any) -> str:
    """Return the name that an author probably meant: from the value's type, or a similar name of a hook that fits."""
    if isinstance(value, Limits):
        return "limits"
    if isinstance(value, type) and issubclass(value, EnvConfig):
        return "Config"
    known = ["blocking"] if isinstance(value, bool) else []
    if inspect.isroutine(value):
        known = [hook for hook, arguments in HOOKS.items() if not _call_fault(value, arguments)]
    alike = [other for other in known if other[0] == name[0]]
    return next(iter(difflib.get_close_matches(name, alike, n=1, cutoff=NEAR)), "")


def _unread_rewards(env_class: type) -> Iterator[str]:
    """`@reward` methods of scope "episode" in a class with `score`, which is the only one that is called."""
    scores = [vars(base)["score"] for base in authors_classes(env_class) if "score" in vars(base)]
    if not scores or mark_of(scores[0]):
        return
    marks = {name: getattr(value, REWARD, None) for name, value in vars(env_class).items()}
    if unread := [name for name, mark in marks.items() if isinstance(mark, Reward) and mark.scope == "episode"]:
        yield f"@reward {', '.join(unread)} has no effect because score is defined; remove one"


def _call_fault(value: Any, arguments: tuple[str, ...]) -> str:
    """Return why a method cannot be called with these arguments; '' if it can."""
    function: Callable[..., Any] = getattr(value, "__func__", value)
    bound = arguments if isinstance(value, staticmethod) else ("self", *arguments)
    try:
        inspect.signature(function).bind(*bound)
    except TypeError as error:
        return str(error)
    except ValueError:  # a callable without a signature
        return ""
    return ""


def _context_fault(function: Callable[..., Any], reward: Reward) -> str:
    """Return why a group reward that expects a context fails; '' if it takes episodes."""
    is_context = reward.scope == "group" and "ctx" in function.__code__.co_varnames[: function.__code__.co_argcount]
    return "it takes the finished episodes of a task, and there is no ctx" if is_context else ""


def _call(name: str, arguments: tuple[str, ...]) -> str:
    return f"{name}({', '.join(arguments)})"


def _shares_name(decorator: ast.expr) -> bool:
    return (getattr(decorator, "attr", "") or getattr(decorator, "id", "")) in SHARED_NAME
