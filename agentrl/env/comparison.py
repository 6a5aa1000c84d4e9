"""The first difference between two values that should be equal."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass
from types import CellType, FunctionType
from typing import Any

from agentrl.env.messages import short
from agentrl.errors import catch


def difference(one: Any, other: Any, where: str = "", outer: frozenset[tuple[int, int]] = frozenset()) -> str:
    """Return where two values differ first, with both values; "" if they are equal. NaN equals NaN.

    `outer` has the pairs that contain these two, which ends the comparison of values that contain themselves.
    """
    pair = (id(one), id(other))
    if one is other or pair in outer:
        return ""
    parts, others = _parts(one), _parts(other)
    if type(one) is not type(other) or parts is None or others is None:
        return "" if _is_equal(one, other) else f"{where}: {short(one)} and {short(other)}{_doubt(one, other)}"
    for name in {**parts, **others}:
        if name not in parts or name not in others:
            return f"{where}{name}: {_shown(parts, name)} and {_shown(others, name)}"
        if found := difference(parts[name], others[name], f"{where}{name}", outer | {pair}):
            return found
    return ""


def is_comparable(value: Any) -> bool:
    """Return whether a value equals a copy of itself; one with a lock, a generator or an object of its own may not."""
    return not difference(catch(deepcopy, value).value, value)


def _parts(value: Any) -> dict[str, Any] | None:
    """Return the parts of a container or plain object by the text that reads each; None for anything else."""
    if isinstance(value, Mapping):
        return {f"[{key!r}]": item for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {f".{name}": getattr(value, name) for name in value._fields}
    if isinstance(value, list | tuple):
        return {f"[{index}]": item for index, item in enumerate(value)}
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
        return {".__code__": value.__code__, ".__defaults__": value.__defaults__, ".__closure__": cells}
    if is_dataclass(value) and not isinstance(value, type):
        return {f".{field.name}": getattr(value, field.name) for field in fields(value)}
    if _is_opaque(value) and hasattr(value, "__dict__") and not isinstance(value, type):
        return {f".{name}": item for name, item in vars(value).items()}
    return None


def _is_equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal; what has no single truth value, such as an array, by its pickle."""
    if catch(lambda: bool(one == other or (one != one and other != other))).value:
        return True
    pickled = [catch(pickle.dumps, value).value for value in (one, other)]
    return pickled[0] is not None and pickled[0] == pickled[1]


def _doubt(*values: Any) -> str:
    return " (cannot be compared; use plain values, such as a list)" if all(map(_is_opaque, values)) else ""


def _is_opaque(value: object) -> bool:
    """Return whether a value is equal to itself alone."""
    return "__eq__" not in {name for owner in type(value).__mro__[:-1] for name in vars(owner)}


def _shown(parts: dict[str, Any], name: str) -> str:
    return short(parts[name]) if name in parts else "nothing"
