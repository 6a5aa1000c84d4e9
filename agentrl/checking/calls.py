"""Whether tools answer whatever arguments a model gives: in time, in an episode that ends well, and alike each time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from agentrl.checking.attempts import Arguments, Call, calling, faults_of, offered
from agentrl.checking.check import FailedError, SkippedError, Subject
from agentrl.checking.hanging import changed
from agentrl.env.comparison import difference
from agentrl.env.context import StepResult
from agentrl.env.messages import short
from agentrl.env.tasks import Task
from agentrl.env.testing.cancellation import described_error
from agentrl.env.testing.episodes import Moment, moments, play_each, sample_tasks, signals_of
from agentrl.errors import acatch
from agentrl.types import TOOL_ERROR, text_of

LIMIT_S = 10.0
"""Most time for a call."""
HUGE = 10**30
VALID: dict[str, Any] = {"string": "a", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
NESTED: list[Any] = [[[{"a": [None, {"b": []}]}]]]
ODD: dict[str, tuple[Any, ...]] = {
    "string": ("", "x" * 100_000, "\u202eñ 漢字 🙂 \x00", 7, NESTED, None),
    "integer": (0, -1, HUGE, -HUGE, "one", NESTED, None),
    "number": (0, -1.5, 1e308, -1e308, "one", NESTED, None),
    "boolean": (False, "no", None),
    "array": (NESTED, [""] * 10_000, "a", None),
    "object": ({"a": NESTED}, "a", None),
}
"""What a model may give, by the type of the parameter: odd values of that type, and values of other types."""


async def check_odd_calls(subject: Subject) -> str:
    """Call each tool with odd arguments, one call in an episode."""
    task = (await sample_tasks(subject.make(), 1))[0]
    tools = await offered(subject, task)
    if not tools:
        raise SkippedError("the environment offers no tools")
    calls = [(tool["name"], arguments) for tool in tools for arguments in odd_arguments(tool["parameters"])]
    await play_each(partial(_check, changed(subject, {}, tool_timeout_s=LIMIT_S), task), calls)
    return f"{len(calls)} calls of {len(tools)} tools"


def valid_arguments(schema: Mapping[str, Any]) -> Arguments:
    """Return arguments of the types that a tool asks for."""
    known = schema.get("properties", {})
    return {name: _valid(known.get(name, {})) for name in schema.get("required", known)}


def odd_arguments(schema: Mapping[str, Any]) -> Iterator[Arguments]:
    """Yield valid arguments, none, one too many, and then those that are odd in one parameter."""
    valid = valid_arguments(schema)
    yield from (valid, {}, valid | {"unexpected": 1})
    for name, parameter in schema.get("properties", {}).items():
        yield from (valid | {name: value} for value in ODD.get(_type(parameter), (NESTED, None)))


def _valid(schema: Mapping[str, Any]) -> Any:
    return schema["enum"][0] if schema.get("enum") else VALID.get(_type(schema))


def _type(schema: Mapping[str, Any]) -> str:
    """Return the type of a parameter, the first of several; "" if the schema does not say."""
    kinds = schema.get("type") or next((kind["type"] for kind in schema.get("anyOf", ()) if "type" in kind), "")
    return str(kinds[0] if isinstance(kinds, list) else kinds)


async def _check(subject: Subject, task: Task, call: Call) -> None:
    name, arguments = call
    what = f"the call {name}({', '.join(f'{key}={short(value)}' for key, value in arguments.items())})"
    one, twin = [await _played(subject, task, call, what) for _ in range(2)]
    if found := difference(one, twin):
        raise FailedError(f"{what} makes two episodes of the same seed differ: {found}")


async def _played(subject: Subject, task: Task, call: Call, what: str) -> list[Moment]:
    """Return an episode with one call. Raises FailedError if the call takes too long or leaves no valid reward."""
    outcome = await acatch(_moments(subject, task, call))
    if outcome.error:
        raise FailedError(f"{what} ends the episode with an error: {described_error(outcome.error)}")
    played: list[Moment] = outcome.value
    steps = [moment.result for moment in played if isinstance(moment.result, StepResult)]
    late = f"{TOOL_ERROR}{subject.env_class.__name__}.{call[0]} ran longer than "
    if any(text_of(message).startswith(late) for step in steps for message in step.messages):
        raise FailedError(f"{what} takes longer than {subject.make().limits.tool_timeout_s:g} s")
    if faults := faults_of(signals_of(played).values()):
        raise FailedError(f"an episode with {what} has no reward: {faults[0]}")
    return played


async def _moments(subject: Subject, task: Task, call: Call) -> list[Moment]:
    return [moment async for moment in moments(subject.make(), task, [calling(call)])]
