"""Values in the types of TOML, and as text."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import BaseModel
from pydantic_core import to_jsonable_python


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return the path with the home folder in place of a leading `~`; `~name` of an unknown user stays."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 (Path.expanduser raises for an unknown user)


def anchored_model(name: str) -> str:
    """Return the name of a model; absolute if it is a folder."""
    is_folder = name.startswith((".", "~")) or Path(name).is_dir()
    return str(expanded(name).absolute()) if name and is_folder else name


def toml_text(value: Any) -> str:
    """Return one value on one line of a TOML file; what TOML has no type for is written as text."""
    array = tomlkit.array()
    array.append(plain(value, str))
    return array.as_string()[1:-1]


def plain(value: Any, fallback: Callable[[Any], Any] | None = None) -> Any:
    """`value` in the types of TOML. TOML has no null: None is left out of tables and lists.

    `fallback` converts values of other types; without it they raise ValueError.
    """
    match value:
        case Enum():
            return plain(value.value, fallback)
        case bool() | int() | float() | str():
            return value
        case BaseModel():
            return plain(dict(value), fallback)
        case Mapping():
            return {_key(key): plain(item, fallback) for key, item in value.items() if item is not None}
        case list() | tuple() | set() | frozenset():
            return [plain(item, fallback) for item in value if item is not None]
        case datetime.datetime() | datetime.date() | datetime.time():
            return value if _is_in_toml(value) else value.isoformat()
    return to_jsonable_python(value, fallback=fallback)


def _key(key: Any) -> str:
    return str(to_jsonable_python(plain(key, str), fallback=str))


def _is_in_toml(value: datetime.date | datetime.time) -> bool:
    """False for a time with an offset, and for an offset with seconds."""
    offset = value.utcoffset() if isinstance(value, datetime.datetime | datetime.time) else None
    return offset is None or (isinstance(value, datetime.datetime) and not offset.seconds % 60 + offset.microseconds)
