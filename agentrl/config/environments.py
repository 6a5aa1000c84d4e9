"""The environments of a run as tables: one `[env]`, several `[[env]]`, or a text such as "math:2,guess:1"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic_core import PydanticCustomError

from agentrl.config.values import expanded
from agentrl.errors import did_you_mean

WEIGHT = re.compile(r"(?P<name>.+):(?P<weight>\d+(?:\.\d+)?)")
NO_WEIGHT = re.compile(r".+:(nan|[-+]?inf|[-+]\d+(\.\d*)?)", re.IGNORECASE)
"""A name with a number that cannot be a weight."""
PORT = re.compile(r"//(\[[^\]]*\]|[^/:]*)$")
"""What precedes the port of a URL."""
SEPARATOR = re.compile(r",(?!\s*[=<>!~])")
"""A comma between two names; a comma before an operator is one of a name's version, as in `math>=1,<2`."""
FLAG = re.compile(r"[^.=<>!~@]+")
"""A label that may be a part of a flag."""
MOST = 1000
"""Maximum weight: the port of an address without a scheme is larger, so that it is refused and not mistaken."""


def tables(value: Any) -> Sequence[Any]:
    """Return the tables of `env`, which is one table, a sequence of them, or a section that exists."""
    if isinstance(value, Mapping):
        return list(_split(value))
    if not isinstance(value, list | tuple):
        return (value,)
    for number, item in enumerate(value, 1):
        if isinstance(item, Mapping) and "name" not in item:
            raise PydanticCustomError(
                "environments",
                "has a table without a name: give table {number} of {count} a key name",
                {"number": number, "count": len(value)},
            )
    return [{"name": item} if isinstance(item, str) else item for item in value]


def _split(table: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the table of each environment that `name` lists; the keys of one of them are under its name."""
    name = table.get("name", "")
    named = listed(name) if isinstance(name, str) else []
    if len(named) < 2:
        yield table
        return
    own = {key: keys for key, keys in table.items() if key != "name"}
    labels = [name for name, _ in named]
    for key, keys in own.items():
        if isinstance(keys, Mapping) and key not in labels:
            raise PydanticCustomError(
                "environments",
                "has no environment {key}.{known} Where a name has a version or a point, write [[env]] tables",
                {"key": repr(key), "known": did_you_mean(key, labels)},
            )
        if key not in labels:
            flags = [f"env.{label}.{key}" for label in labels if FLAG.fullmatch(label)]
            flag = " or ".join(flags) + ", or " if flags else ""
            raise PydanticCustomError(
                "environments",
                "has several environments, so that {key} is nobody's key: write {flag}[[env]] tables",
                {"key": key, "flag": flag},
            )
        if not isinstance(keys, Mapping):
            raise PydanticCustomError(
                "environments", "has a value where the keys of {key} should be", {"key": repr(key)}
            )
    for name, weight in named:
        yield {"name": name, **({} if weight is None else {"weight": weight}), **own.get(name, {})}


def listed(text: str) -> list[tuple[str, float | None]]:
    """Return the names in "math:2,guess:1" with their weights, None where there is none; one name is never split.

    A name may have a version, as in "math>=1,<2:3,guess==0.1": a part that begins with an operator belongs to the name
    before it. A number after the last colon is a weight, unless it is the port of a URL: `x:http://host:80` has none,
    and `x:http://host:80:2` has the weight 2.
    """
    names = [part.strip() for part in SEPARATOR.split(text)]
    file, colon, inside = text.rpartition(":")
    is_class = bool(file and colon) and "," not in inside
    if len(names) == 1 or expanded(text).exists() or (is_class and expanded(file).exists()):
        return [(text, None)]
    return [_weighted(name) for name in names]


def _weighted(text: str) -> tuple[str, float | None]:
    if text.lstrip("@").startswith(tuple("0123456789")):
        raise PydanticCustomError(
            "environments",
            "has an environment {text}, which is the beginning of a version: write every name with its own version, as "
            "in math==0.1,math==0.2, and a range with operators, as in math>=1,<2",
            {"text": repr(text)},
        )
    if NO_WEIGHT.fullmatch(text):
        raise PydanticCustomError(
            "environments",
            "has an environment {text}, whose end is no weight: weights are numbers above 0, as in math:2,guess:1",
            {"text": text},
        )
    found = WEIGHT.fullmatch(text)
    if found is None or PORT.search(found["name"]):
        return text, None
    weight = float(found["weight"])
    if weight > MOST:
        raise PydanticCustomError(
            "environments",
            "has an environment {text}, whose end is no weight, because weights are at most 1000: if it belongs to the "
            "name, add a weight, as in {text}:1",
            {"text": text},
        )
    return found["name"], weight


def check_labels(labels: Sequence[str]) -> None:
    """Refuse environments with the same label: their records could not be told apart."""
    if not labels:
        raise PydanticCustomError("environments", "names no environment")
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise PydanticCustomError(
            "environments",
            'names two environments {label}: write [[env]] tables, and give one of them a key alias = "other"',
            {"label": repr(twice)},
        )
