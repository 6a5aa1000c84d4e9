"""Rules for the class of an environment: what agentrl could not honour is rejected when the class is made."""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cached_property
from typing import Any

from agentrl.config.schema import EnvSection
from agentrl.env.config import EnvConfig, Limits
from agentrl.env.rewards import MARK as REWARD
from agentrl.env.rewards import is_number
from agentrl.env.signatures import HOOKS, call_fault, hook_fault, mark_of, marked_fault
from agentrl.errors import ConfigError

SETTINGS = {"Config", "limits", "blocking", "solved_reward", "wraps"}
GYMNASIUM = {"reset": "setup", "step": "respond", "close": "teardown"}
"""Methods of Gymnasium's interface, which belong to `GymnasiumEnv`, and the hooks that do their work."""
RESERVED = {
    "config", "ctx", "code", "resources", *GYMNASIUM,
    "render", "metadata", "spec", "observation_space", "action_space", "np_random", "unwrapped",
}  # fmt: skip
"""Names that mean something else to agentrl or to users of Gymnasium."""
STEPPED = ("setup", "respond")
"""Hooks of the step mode."""
LIMITS = {field.name for field in fields(Limits)}
NOT_AUTHORS = sys.stdlib_module_names | {"agentrl"}
"""Packages whose classes are not checked."""
NEAR = 0.7
"""Similarity (`difflib`) from which a name counts as a misspelling of another: canary and canaries have 0.71."""


def check_definition(env_class: type) -> None:
    """Raise one ConfigError with every fault of a class body."""
    members = members_of(env_class)
    faults = [*settings_faults(members), *(fault for name in members if (fault := _fault(env_class, members, name)))]
    if faults:
        raise ConfigError("\n".join(f"{env_class.__name__}: {fault}" for fault in faults))


def _fault(env_class: type, members: Mapping[str, Any], name: str) -> str:
    value, drives = members[name], getattr(env_class, "_drives", False)
    kind = mark_of(value)
    if name in GYMNASIUM and not kind:
        fault = f"belongs to Gymnasium's interface, which a run never calls; write {GYMNASIUM[name]} instead"
    elif name in RESERVED or (kind and name in HOOKS.keys() | SETTINGS):
        fault = f"is reserved by agentrl; rename it, for example my_{name}"
    elif name in STEPPED and drives:
        fault = "is never called on an AgentEnv, whose agent sends and receives the messages: write it in play"
    elif name in HOOKS and (name != "play" or drives):
        fault = hook_fault(name, value)
    elif kind:
        fault = marked_fault(name, value) or _unread(env_class, members, name)
    else:
        fault = _unmarked(env_class, name) or _limit(name, value) or _misspelled(members, name)
    return fault and f"{f'@{kind} ' if kind else ''}{name} {fault}"


def authors_classes(env_class: type) -> list[type]:
    """Return this class, its bases and its mix-ins, except those of agentrl and of the standard library."""
    return [base for base in env_class.__mro__ if base.__module__.partition(".")[0] not in NOT_AUTHORS]


def members_of(env_class: type) -> dict[str, Any]:
    """Return the attributes of a class that its author's classes define, by name."""
    owners = {name: owner for owner in reversed(env_class.__mro__) for name in vars(owner)}
    authors = authors_classes(env_class)
    return {
        name: vars(owner)[name]
        for name, owner in owners.items()
        if owner in authors and not (name.startswith("__") and name.endswith("__"))
    }


def settings_faults(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with `Config`, `limits`, `blocking`, `solved_reward` and `wraps`."""
    schema, limits = settings.get("Config", EnvConfig), settings.get("limits", Limits())
    if not (isinstance(schema, type) and issubclass(schema, EnvConfig)):
        yield "Config must derive from agentrl.env.EnvConfig, which checks the --env.* keys"
    elif taken := next((key for key in EnvSection.model_fields if key in schema.model_fields), None):
        yield f"Config.{taken} cannot be set, because --env.{taken} is a key of every environment; rename the key"
    if not isinstance(limits, Limits | property | cached_property):
        yield f"limits is {limits!r}; write limits = Limits(max_turns=…)"
    if not isinstance(settings.get("blocking", True), bool):
        yield f"blocking is {settings['blocking']!r}; write True or False"
    least = settings.get("solved_reward")
    if not (least is None or isinstance(least, property | cached_property) or (is_number(least) and least > 0)):
        yield f"solved_reward is {least!r}; write a finite number above 0, or None"
    wraps = settings.get("wraps", ())
    if not (isinstance(wraps, tuple) and all(isinstance(name, str) for name in wraps)):
        yield f"wraps is {wraps!r}; write a tuple of names of distributions, as in wraps = ('reasoning-gym',)"


def _unmarked(env_class: type, name: str) -> str:
    """Report a method that overrides a marked one and would be ignored, because marks are not inherited."""
    value, *overridden = (vars(base)[name] for base in env_class.__mro__ if name in vars(base))
    if callable(value) and overridden and (kind := mark_of(overridden[0])):
        return f"overrides a @{kind} of a base class: decorate it too, or write {name} = None"
    return ""


def _unread(env_class: type, members: Mapping[str, Any], name: str) -> str:
    """Report a `@reward` of the episode in a class with `score`, which is called instead."""
    mark = getattr(vars(env_class).get(name), REWARD, None)
    is_unread = mark and mark.scope == "episode" and "score" in members and not mark_of(members["score"])
    return "has no effect because score is defined; remove one" if is_unread else ""


def _limit(name: str, value: Any) -> str:
    """Report a number under the name of a field of `Limits`, which agentrl reads in `limits` only."""
    is_limit = name in LIMITS and isinstance(value, int | float)
    return f"has no effect on the class: write limits = Limits({name}={value!r})" if is_limit else ""


def _misspelled(members: Mapping[str, Any], name: str) -> str:
    """Report a name that agentrl never reads, for a value that it reads under another name."""
    meant = "" if name.startswith("_") else _meant(name, members[name])
    if not meant or meant in members:
        return ""
    return f"has no effect. Did you mean {meant!r}? If it is your own, rename it, for example _{name}"


def _meant(name: str, value: Any) -> str:
    """Return the name that an author probably meant: from the value's type, or a similar name of a hook that fits."""
    if isinstance(value, Limits):
        return "limits"
    if isinstance(value, type) and issubclass(value, EnvConfig):
        return "Config"
    known = ["blocking"] if isinstance(value, bool) else []
    if inspect.isroutine(value):
        known = [hook for hook, arguments in HOOKS.items() if not call_fault(hook, value, arguments)]
    lower = name.lower()
    alike = [other for other in known if other[0] == lower[0]]
    return next(iter(difflib.get_close_matches(lower, alike, n=1, cutoff=NEAR)), "")
