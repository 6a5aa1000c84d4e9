"""Which verifiers is installed, and the package of an environment's id."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from agentrl.env import wraps_of
from agentrl.errors import ConfigError, catch_exit

PLAIN = (int, float, bool, str, NoneType)
LIBRARY = "verifiers"
REMEDY = (
    "pip install it into the interpreter of this environment (verifiers and the training stack may need one each: "
    "--env.python), for example from its wheel or with `prime env install OWNER/NAME`"
)


def _table(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


Table = Annotated[dict[str, Any], BeforeValidator(_table)]
"""A table of a file, or JSON on the command line."""


@cache
def is_classic() -> bool:
    """Return whether the installed verifiers has `load_environment(id, **args)`: 0.3, and not 0.4.

    Raises ConfigError for a version that the adapter does not know.
    """
    try:
        installed = version(LIBRARY)
    except PackageNotFoundError as error:
        raise ConfigError(f"verifiers is not installed; pip install 'verifiers>=0.3,<0.5', {REMEDY}") from error
    lane = ".".join(installed.split(".")[:2])
    if lane not in ("0.3", "0.4"):
        raise ConfigError(f"verifiers {installed} is installed; the adapter knows 0.3 and 0.4")
    return lane == "0.3"


def module_of(name: str, builtin: str = "") -> ModuleType:
    """Import the module of an environment's id, `name` or `owner/name`; one below the package `builtin` has precedence.

    Raises ConfigError if there is none, or if its import fails.
    """
    bare = name.rpartition("/")[2].replace("-", "_").lower()
    if not bare.isidentifier():
        raise ConfigError(f"verifiers:{name}: an id is NAME or OWNER/NAME, with @VERSION behind it if you want")
    own = f"{builtin}.{bare}"
    target = own if builtin and find_spec(own) else bare
    if find_spec(target) is None:
        raise ConfigError(f"verifiers:{name}: the module {target} is not installed; {REMEDY}")
    outcome = catch_exit(import_module, target)
    if outcome.error is not None:
        raise ConfigError(f"verifiers:{name}: import {target} fails: {outcome.error!r}") from outcome.error
    module: ModuleType = outcome.value
    return module


def wrapped_by(module: ModuleType, name: str) -> tuple[str, ...]:
    """Return what a class around an environment's module wraps: first its distribution, last verifiers.

    A module without a distribution is listed under its own name, which no version can meet, and by its file.
    """
    if module.__name__.partition(".")[0] == LIBRARY:
        return (LIBRARY,)
    found, dashed = wraps_of(module.__name__), name.rpartition("/")[2].replace("_", "-").lower()
    try:
        version(dashed)
    except PackageNotFoundError:
        dashed = next((each for each in found if not Path(each).is_absolute()), dashed)
    return tuple(dict.fromkeys([dashed, *found, LIBRARY]))


def keys_of(function: Callable[..., Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the arguments that a command line can express: name, type, and default (`...` if there is none)."""
    hints = catch_exit(get_type_hints, function).value or {}
    for name, parameter in inspect.signature(function).parameters.items():
        is_named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        is_required = parameter.default is parameter.empty
        hint = hints.get(name, str if is_required else type(parameter.default))
        if is_named and hint is not NoneType and is_plain(hint) and (is_required or fits(hint, parameter.default)):
            yield name, hint, ... if is_required else parameter.default


def is_plain(hint: Any) -> bool:
    """Return whether a type has words as values, or lists of words."""
    if get_origin(hint) is Literal:
        return True
    if get_origin(hint) in (list, tuple, Union, UnionType):
        return all(part is Ellipsis or is_plain(part) for part in get_args(hint))
    return hint in PLAIN


def fits(hint: Any, default: Any) -> bool:
    """Return whether a default has its declared type; where it has not, the key could not be checked."""
    try:
        TypeAdapter(hint).validate_python(default, strict=True)
    except ValidationError:
        return False
    return True


def merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """Return two tables as one; where both have a value, that of `high`."""
    both = {key: merged(low[key], high[key]) for key in low.keys() & high.keys() if _are_tables(low[key], high[key])}
    return {**low, **high, **both}


def _are_tables(*values: Any) -> bool:
    return all(isinstance(value, Mapping) for value in values)
