"""An environment class that other processes cannot import, such as a notebook's: pickled with its code."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FunctionType
from typing import get_type_hints

import cloudpickle

from agentrl.env.base import Env
from agentrl.env.registry import announced, load
from agentrl.errors import ConfigError, catch


def name_of(env_class: type[Env]) -> str:
    """Return the name by which every process finds the class: announced, or `file.py:Class`; "" if there is none."""
    package = env_class.__module__.partition(".")[0]
    for item in announced().values():
        if item.target.replace(":", ".").partition(".")[0] == package and not item.rival and load(item) is env_class:
            return item.name
    module = sys.modules[env_class.__module__]
    file = getattr(module, "__file__", None)
    is_alone = module.__name__ != "__main__" and not module.__package__
    is_global = getattr(module, env_class.__qualname__, None) is env_class
    return f"{Path(file).resolve()}:{env_class.__qualname__}" if file and is_alone and is_global else ""


def dump(env_class: type[Env], path: Path) -> None:
    """Write the class and the code it uses to `path`. Raises ConfigError if it cannot be pickled."""
    _evaluate_annotations(env_class)
    pickled = catch(cloudpickle.dumps, env_class)
    if pickled.error:
        raise ConfigError(
            f"{env_class.__name__} cannot be pickled ({type(pickled.error).__name__}: {pickled.error}): "
            f'write it into a file and pass env="./file.py:{env_class.__name__}"'
        ) from pickled.error
    path.write_bytes(pickled.value)


def _evaluate_annotations(env_class: type[Env]) -> None:
    """Replace annotations that are text by what they name: cloudpickle takes along only names that code reads."""
    for owner in env_class.__mro__[: env_class.__mro__.index(Env)]:
        for value in vars(owner).values():
            function = getattr(value, "__func__", value)
            hints = catch(get_type_hints, function, None, None, True) if isinstance(function, FunctionType) else None
            if hints and not hints.error:
                function.__annotations__ = hints.value
