"""Losses that an author writes as functions, in a file or a package, with the columns that they read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint
from types import FunctionType, ModuleType
from typing import Any, Literal, TypeVar, get_args

from agentrl.config.values import expanded
from agentrl.errors import ConfigError, UnknownNameError, catch, catch_exit
from agentrl.plugins.files import is_path, load_file, split_class
from agentrl.plugins.tracebacks import defined_at, describe_error

LossColumn = Literal["old", "reference", "teacher", "values", "returns"]
"""What a loss may read besides logprobs, entropy, advantages and weights; the run always has "old"."""
F = TypeVar("F", bound=Callable[..., Any])
COLUMNS = "__agentrl_columns__"
REMEDIES = {
    "reference": "set algorithm.kl_coef above 0",
    "teacher": "choose an algorithm that has one (distillation)",
    "values": "choose an algorithm with a critic (ppo)",
    "returns": "choose an algorithm with a critic (ppo)",
}
"""Where a column comes from that a loss needs."""


def reads(*columns: LossColumn) -> Callable[[F], F]:
    """Declare the columns that a loss reads: a run that does not have them is refused before it starts."""
    for column in columns:
        if column not in get_args(LossColumn):
            raise UnknownNameError("column of a loss", str(column), get_args(LossColumn))

    def declared(loss: F) -> F:
        setattr(loss, COLUMNS, frozenset(columns))
        return loss

    return declared


@dataclass(frozen=True, slots=True)
class OwnLoss:
    """A function of `Terms` and the algorithm's configuration that returns the loss of each token [A]."""

    name: str
    function: FunctionType

    @property
    def columns(self) -> frozenset[LossColumn]:
        """The columns that it declares with `reads`."""
        columns: frozenset[LossColumn] = getattr(self.function, COLUMNS, frozenset())
        return columns


@cache
def own_loss(name: str) -> OwnLoss:
    """Return the loss called `./file.py`, `./file.py:function` or `package:function`. Raises ConfigError."""
    what = f"algorithm.loss {name!r}"
    if is_path(name):
        function = _of_file(what, name)
    else:
        loaded = catch_exit(EntryPoint(name, name, "").load)
        if loaded.error is not None:
            raise ConfigError(f"{what} cannot be loaded: {describe_error(loaded.error)}") from loaded.error
        function = loaded.value
    if not isinstance(function, FunctionType):
        raise ConfigError(f"{what} is a {type(function).__name__}, not a function of terms and config")
    if error := catch(inspect.signature(function).bind, None, None).error:
        raise ConfigError(f"{what}{defined_at(function)} is called with terms and config: {error}")
    return OwnLoss(name, function)


def _of_file(what: str, name: str) -> object:
    file, chosen = split_class(name)
    path = expanded(file).resolve()
    if not path.is_file():
        raise ConfigError(f"{what}: {path} does not exist")
    module = load_file(path)
    known = _functions(module)
    if chosen:
        if not hasattr(module, chosen):
            raise UnknownNameError(f"loss of {path}", chosen, known)
        return getattr(module, chosen)
    if len(known) != 1:
        found = ", ".join(known) or "none"
        raise ConfigError(f"{what}: name a function of the file, as in {file}:my_loss; found: {found}")
    return getattr(module, known[0])


def _functions(module: ModuleType) -> list[str]:
    """Return the public functions that a module itself defines."""
    own = {name: value for name, value in vars(module).items() if isinstance(value, FunctionType)}
    return [name for name, value in own.items() if value.__module__ == module.__name__ and not name.startswith("_")]
