"""What the adapter uses of reasoning-gym."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

with warnings.catch_warnings():  # one of its requirements has invalid comparisons, which the first import reports
    warnings.simplefilter("ignore")
    import reasoning_gym
    from reasoning_gym.factory import DATASETS
    from reasoning_gym.utils import SYSTEM_PROMPTS, extract_answer

Entry = dict[str, Any]
"""A question with its answer and metadata."""
NAMES = sorted(DATASETS.keys() - {"composite"})
"""The datasets that have a name; a composite one is made of several."""
WORDS = (int, float, bool, str, NoneType)
STRICT = ConfigDict(strict=True)

__all__ = ["NAMES", "SYSTEM_PROMPTS", "Entry", "dataset", "extract_answer", "keys_of", "module_of"]


def dataset(name: str, keys: Mapping[str, Any], seed: int = 0, size: int = 1) -> Any:
    """Make a dataset of the library; raises what the library raises for keys that do not fit together."""
    return reasoning_gym.create_dataset(name, seed=seed, size=size, **keys)


def module_of(name: str) -> str:
    """Return the module that defines a dataset."""
    return str(DATASETS[name][0].__module__)


def keys_of(name: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the settings of a dataset that a command line can express: name, type and default."""
    config = DATASETS[name][1]
    hints = get_type_hints(config)
    for field in fields(config):
        if field.name not in ("seed", "size") and _is_plain(hints[field.name]):
            default = _default(field)
            if _fits(hints[field.name], default):
                yield field.name, hints[field.name], default


def _is_plain(hint: Any) -> bool:
    """Return whether a type has words as values, or lists of words."""
    if get_origin(hint) is Literal:
        return True
    if get_origin(hint) in (list, tuple, Union, UnionType):
        return all(part is Ellipsis or _is_plain(part) for part in get_args(hint))
    return hint in WORDS


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _fits(hint: Any, default: Any) -> bool:
    """Return whether the default has the declared type; where it has not, the key cannot be checked."""
    try:
        TypeAdapter(hint).validate_python(default)
    except ValidationError:
        return False
    return default is not MISSING
