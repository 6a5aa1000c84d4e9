"""Rules for the attributes of an author's object: none may hide what agentrl calls."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from agentrl.env.config import EnvConfig
from agentrl.env.definition import RESERVED, SETTINGS, settings_faults
from agentrl.env.signatures import HOOKS, mark_of
from agentrl.errors import ConfigError
from agentrl.plugins.tracebacks import defined_at

INIT = "def __init__(self, config=None, **options), and super().__init__(config, **options) in it"
"""The `__init__` of an author's class that takes what agentrl gives it."""


@cache
def checked_names(env_class: type) -> dict[str, str]:
    """Return the names whose assignments are checked, each with what it is in agentrl or in the class."""
    names = {name for base in env_class.__mro__ for name in vars(base)}
    kinds = {name: mark_of(inspect.getattr_static(env_class, name)) for name in names}
    marked = {name: f"a @{kind} of the class" for name, kind in kinds.items() if kind}
    return dict.fromkeys((*HOOKS, *RESERVED, *SETTINGS), "reserved by agentrl") | marked


def check_assignment(env: Any, name: str, value: Any) -> None:
    """Raise ConfigError if `self.name = value` hides what agentrl calls; called by `Env.__setattr__`.

    An object may set what it holds already, as in `self.ctx = ctx`, and a config of its class that it makes itself.
    """
    env_class: Any = type(env)
    held = vars(env)
    if (name in held and held[name] is value) or (name == "config" and isinstance(value, env_class.Config)):
        return
    if name in ("limits", "blocking", "solved_reward"):
        fault = next(settings_faults({name: value}), "")
    else:
        fault = f"sets self.{name}, which is {checked_names(env_class)[name]}; rename it, for example self.my_{name}"
    if fault:
        frame = sys._getframe(2)  # the assignment
        where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        raise ConfigError(f"{env_class.__name__} ({where}) {fault}")


def check_options(env_class: Any, config: Any, options: Mapping[str, Any]) -> None:
    """Raise ConfigError if an object is made of a config and options, or of a config in place of an option."""
    key = next((key for key, value in options.items() if isinstance(value, env_class.Config)), "")
    if key:
        raise ConfigError(
            f"{env_class.__name__}{defined_at(env_class.__init__)} takes the config as {key}: write {INIT}; "
            f"the value is self.config.{key}"
        )
    if config is not None and options:
        raise ConfigError(
            f"{env_class.__name__} takes a config or options, not both: put {', '.join(options)} into the config"
        )


def check_made(env: Any, config: EnvConfig | None = None) -> None:
    """Raise ConfigError if a new object has no config of its class or `limits` is not a Limits.

    An author may make the config from the given one, but every key that is set in `config` must be set in it too.
    """
    env_class, held = type(env), vars(env).get("config")
    given = config.model_fields_set if config else set()
    if isinstance(held, env_class.Config) and given <= held.model_fields_set:
        fault = next(settings_faults({"limits": env.limits}), "")
    elif isinstance(held, EnvConfig) and not isinstance(held, env_class.Config):
        other = type(held).__name__
        fault = f"holds a config of another class ({other}): make it with {env_class.__name__}.Config"
    elif is_dataclass(env_class):
        fault = "loses its config, because a dataclass replaces __init__: remove @dataclass, and write class Config"
    else:
        fault = f"loses its config: write {INIT}"
    if fault:
        raise ConfigError(f"{env_class.__name__}{defined_at(env_class.__init__)} {fault}")
