"""Compares the calls of a turn with the wanted calls by structure; nothing is run.

The rules are those of the Berkeley Function Calling Leaderboard's AST checker (Patil et al., ShishirPatil/gorilla,
Apache-2.0): names are equal, required arguments are present, no argument is unknown, types match the schema, and
each value is an acceptable one; text is compared without case, spaces and the signs , . / - _ * ^. Two differences:
calls in any order are matched as a whole (the leaderboard takes the first that fits), and 5.0 is an integer, as in
JSON Schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as short_repr
from typing import Any

from agentrl.env import why_unsendable
from agentrl.types import ToolCall, ToolSpec

BARE = str.maketrans("'", '"', " ,./-_*^")
MAX_SHOWN = 80
OMITTED = ""
"""As an acceptable value of an argument: it may be left out."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A wanted call, with the acceptable values of each argument."""

    name: str
    arguments: Mapping[str, Sequence[Any]]


def mismatch(calls: Sequence[ToolCall], wanted: Sequence[Wanted], tools: Sequence[ToolSpec]) -> str:
    """Return what is wrong with the calls; '' if they are the wanted ones in any order."""
    if len(calls) != len(wanted):
        return f"{len(calls)} calls instead of {len(wanted)}"
    specs = {tool["name"]: tool for tool in tools}
    faults = [[fault_of(call, want, specs[want.name]) for want in wanted] for call in calls]
    if pairs_all([[not fault for fault in row] for row in faults]):
        return ""
    return next((min(row, key=len) for row in faults if all(row)), "two calls match the same wanted call")


def pairs_all(fits: list[list[bool]]) -> bool:
    """True if every row can be assigned its own fitting column (Kuhn's augmenting paths)."""
    taken: dict[int, int] = {}

    def assign(row: int, tried: set[int]) -> bool:
        for column in (c for c, fit in enumerate(fits[row]) if fit and c not in tried):
            tried.add(column)
            if column not in taken or assign(taken[column], tried):
                taken[column] = row
                return True
        return False

    return all(assign(row, set()) for row in range(len(fits)))


def fault_of(call: ToolCall, wanted: Wanted, spec: ToolSpec) -> str:
    """Return what is wrong with one call; '' if nothing is."""
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    if name != wanted.name:
        return f"{name[:MAX_SHOWN]} instead of {wanted.name}"
    if not isinstance(arguments, dict):
        return f"{name}: the arguments are not a JSON object"
    properties = spec["parameters"].get("properties", {})
    for argument in (*spec["parameters"].get("required", ()), *wanted.arguments):
        if argument not in arguments and OMITTED not in wanted.arguments.get(argument, (OMITTED,)):
            return f"{name}: {argument} is missing"
    for argument, value in arguments.items():
        if argument not in properties or argument not in wanted.arguments:
            return f"{name}: {argument[:MAX_SHOWN]} is not wanted"
        if not is_one_of(value, wanted.arguments[argument], properties[argument]):
            return f"{name}: {argument} is {shown(value)}"
    return ""


def is_one_of(value: Any, acceptable: Sequence[Any], schema: Mapping[str, Any]) -> bool:
    """True for an acceptable value of the schema's type (or of the acceptable value's own type)."""
    return any(
        is_equal(value, one) and (has_type(value, schema) or type(value) is type(one))
        for one in acceptable
        if one != OMITTED or value == OMITTED
    )


def is_equal(value: Any, one: Any) -> bool:
    """Equality by the leaderboard's rules; an acceptable object lists the acceptable values of each key."""
    if isinstance(value, str) and isinstance(one, str):
        return bare(value) == bare(one)
    if isinstance(value, list) and isinstance(one, list):
        return len(value) == len(one) and all(map(is_equal, value, one))
    if isinstance(value, dict) and isinstance(one, dict):
        return value.keys() <= one.keys() and all(is_value(value, key, options) for key, options in one.items())
    return bool(value == one) and isinstance(value, bool) == isinstance(one, bool)


def is_value(value: Mapping[str, Any], key: str, options: Any) -> bool:
    """True if `value[key]` is one of the options, or is left out and may be."""
    acceptable = options if isinstance(options, list) else [options]
    if key not in value:
        return OMITTED in acceptable
    return any(is_equal(value[key], one) for one in acceptable)


def has_type(value: Any, schema: Mapping[str, Any]) -> bool:
    """True if the value, and every item of a list, has the schema's type."""
    match schema.get("type"):
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return is_whole and not isinstance(value, bool)
        case "number":
            return not isinstance(value, bool) and isinstance(value, int | float)
        case "array":
            return isinstance(value, list) and all(has_type(item, schema.get("items", {})) for item in value)
        case "object":
            return isinstance(value, dict)
        case _:
            return True


def bare(text: str) -> str:
    """Normalise text for comparison."""
    return text.translate(BARE).lower()


def shown(value: Any) -> str:
    """Return the beginning of a value as JSON, or as Python if it cannot be serialized."""
    return (short_repr(value) if why_unsendable(value) else json.dumps(value, default=str))[:MAX_SHOWN]
