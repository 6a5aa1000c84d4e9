"""Whether the calls of a turn are the calls that were wanted, by structure: nothing is run.

The rules are those of the Berkeley Function Calling Leaderboard's AST checker (Patil et al., ShishirPatil/gorilla,
Apache-2.0): names are equal, required arguments are there, no argument is unknown, types are those of the schema, and a
value is one of the acceptable ones; text is compared without case, spaces and the signs , . / - _ * ^. Here calls in
any order are matched as a whole (the leaderboard takes the first that fits), and 5.0 is an integer, as in JSON Schema.
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
MOST_SHOWN = 80
OMITTED = ""
"""Among the acceptable values of an argument: it may be left out."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One call that is wanted: for each argument its acceptable values."""

    name: str
    arguments: Mapping[str, Sequence[Any]]


def mismatch(calls: Sequence[ToolCall], wanted: Sequence[Wanted], tools: Sequence[ToolSpec]) -> str:
    """'' where the calls are the wanted ones, in whatever order; else what is wrong with them."""
    if len(calls) != len(wanted):
        return f"{len(calls)} calls instead of {len(wanted)}"
    specs = {tool["name"]: tool for tool in tools}
    faults = [[fault_of(call, want, specs[want.name]) for want in wanted] for call in calls]
    if pairs_all([[not fault for fault in row] for row in faults]):
        return ""
    return next((min(row, key=len) for row in faults if all(row)), "two calls do what one should do")


def pairs_all(fits: list[list[bool]]) -> bool:
    """True when every row can have a column of its own that fits (Kuhn's augmenting paths)."""
    taken: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column in (c for c, fit in enumerate(fits[row]) if fit and c not in tried):
            tried.add(column)
            if column not in taken or place(taken[column], tried):
                taken[column] = row
                return True
        return False

    return all(place(row, set()) for row in range(len(fits)))


def fault_of(call: ToolCall, wanted: Wanted, spec: ToolSpec) -> str:
    """What is wrong with one call, '' when nothing is."""
    name, given = call["function"]["name"], call["function"]["arguments"]
    if name != wanted.name:
        return f"{name[:MOST_SHOWN]} instead of {wanted.name}"
    if not isinstance(given, dict):
        return f"{name}: the arguments are no JSON object"
    properties = spec["parameters"].get("properties", {})
    for argument in (*spec["parameters"].get("required", ()), *wanted.arguments):
        if argument not in given and OMITTED not in wanted.arguments.get(argument, (OMITTED,)):
            return f"{name}: {argument} is missing"
    for argument, value in given.items():
        if argument not in properties or argument not in wanted.arguments:
            return f"{name}: {argument[:MOST_SHOWN]} is not wanted"
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
    """Equality as the leaderboard sees it; an acceptable object lists the acceptable values of each key."""
    if isinstance(value, str) and isinstance(one, str):
        return bare(value) == bare(one)
    if isinstance(value, list) and isinstance(one, list):
        return len(value) == len(one) and all(map(is_equal, value, one))
    if isinstance(value, dict) and isinstance(one, dict):
        return value.keys() <= one.keys() and all(is_value(value, key, options) for key, options in one.items())
    return bool(value == one) and isinstance(value, bool) == isinstance(one, bool)


def is_value(given: Mapping[str, Any], key: str, options: Any) -> bool:
    """True when `given[key]` is one of the options, or may be left out and is."""
    acceptable = options if isinstance(options, list) else [options]
    if key not in given:
        return OMITTED in acceptable
    return any(is_equal(given[key], one) for one in acceptable)


def has_type(value: Any, schema: Mapping[str, Any]) -> bool:
    """True when the value, and every item of a list, is of the schema's type."""
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
    """Text as it is compared."""
    return text.translate(BARE).lower()


def shown(value: Any) -> str:
    """The beginning of a value as JSON, or as Python where it is nested too deep for JSON."""
    return (short_repr(value) if why_unsendable(value) else json.dumps(value, default=str))[:MOST_SHOWN]
