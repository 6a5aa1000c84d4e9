"""Problems, read from the Berkeley leaderboard's files; every error names file and line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.env import is_in_share, json_lines
from agentrl.errors import DataError
from agentrl.types import Message, ToolSpec
from agentrl_functions.match import Wanted

JSON_TYPES = {
    "dict": "object",
    "float": "number",
    "tuple": "array",
    "list": "array",
    "str": "string",
    "bool": "boolean",
}
NEIGHBOURS = ("answers", "possible_answer")


@dataclass(frozen=True)
class Problem:
    """A request, the functions offered, and the calls wanted: none if no function fits."""

    id: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    wanted: tuple[Wanted, ...]


def read_problems(path: Path, answers: Path | None = None) -> list[Problem]:
    """Return the problems of a JSONL file; the answers are in its rows, in `answers`, or in a file next to it."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if answers is None:
        beside = (path.parent / folder / path.name for folder in NEIGHBOURS)
        answers = next((file for file in beside if file.is_file()), None)
    golds = {row["id"]: row["ground_truth"] for _, row in read_rows(answers, "id", "ground_truth")} if answers else {}
    problems = [as_problem(row, golds, location) for location, row in read_rows(path, "id", "question", "function")]
    if not problems:
        raise DataError(f"{path}: contains no rows")
    return problems


def is_held_out(problem: Problem, share: float) -> bool:
    """Return whether a problem is held out; a hash of its messages decides, not order or seed."""
    return is_in_share(json.dumps(problem.messages), share)


def read_rows(path: Path, *keys: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each row with its location; raises DataError if it lacks one of the keys."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    for location, row in json_lines(path):
        yield location, checked(row, keys, location)


def checked(row: Any, keys: Sequence[str], location: str) -> dict[str, Any]:
    """Check that a row is an object with these keys."""
    for key in keys:
        if not isinstance(row, dict) or key not in row:
            raise DataError(f"{location}: must be an object with the key {key!r}")
    return dict(row)


def as_problem(row: Mapping[str, Any], golds: Mapping[str, Any], location: str) -> Problem:
    """Read one row. A row about irrelevance wants no call; any other needs an answer."""
    gold = row.get("ground_truth", golds.get(row["id"], [] if "irrelevance" in str(row["id"]) else None))
    if gold is None:
        raise DataError(f"{location}: {row['id']} has no ground_truth; give the file of the answers with --env.answers")
    functions = row["function"] if isinstance(row["function"], list) else [row["function"]]
    tools = {function["name"]: as_spec(function, location) for function in functions}
    wanted = tuple(Wanted(name, arguments) for call in gold for name, arguments in call.items())
    for want in wanted:
        if want.name not in tools:
            raise DataError(f"{location}: the answer calls {want.name}, which is not offered")
    return Problem(str(row["id"]), as_messages(row["question"]), tuple(tools.values()), wanted)


def as_messages(question: Any) -> tuple[Message, ...]:
    """Read a question: text, messages, or a list of turns, of which the first is used."""
    if isinstance(question, str):
        return (Message(role="user", content=question),)
    first = question[0] if isinstance(question[0], list) else question
    return tuple(Message(role=message["role"], content=message["content"]) for message in first)


def as_spec(function: Mapping[str, Any], location: str) -> ToolSpec:
    """Return the function as a tool, with the type names of JSON Schema."""
    if not isinstance(function.get("parameters"), dict):
        raise DataError(f"{location}: function {function.get('name')!r} has no parameters")
    return ToolSpec(
        name=function["name"],
        description=function.get("description", ""),
        parameters=as_schema(function["parameters"]),
    )


def as_schema(schema: Any) -> Any:
    """Return a schema with the leaderboard's Python types renamed; `any` is left out."""
    if isinstance(schema, list):
        return [as_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    renamed = {
        key: as_schema(value) for key, value in schema.items() if key != "optional" or not isinstance(value, bool)
    }
    if isinstance(kind := renamed.get("type"), str):
        renamed["type"] = JSON_TYPES.get(kind.lower(), kind.lower())
    return {key: value for key, value in renamed.items() if (key, value) != ("type", "any")}
