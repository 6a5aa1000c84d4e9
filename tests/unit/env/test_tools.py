"""Tools: one schema per class, and errors that the model can read."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from agentrl.env import Context, EnvDriver, Message, Task, tool
from agentrl.env.tools import BadCallError, tools_of
from agentrl.errors import ConfigError
from tests.unit.env.worlds import Desk, InfraError


class Point(BaseModel):
    """Where."""

    x: int
    y: float = 0.0


class Size(TypedDict):
    width: int


class Toolbox:
    @tool
    def plain(self, number: int, ratio: float, text: str, flag: bool) -> str:
        """Take everything simple.

        Nothing of this paragraph is for the model.

        Args:
            number: how many
            ratio (float): a share,
                between 0 and 1
        """
        return ""

    @tool
    def rich(
        self,
        names: list[str],
        table: dict[str, int],
        point: Point,
        size: Size,
        mode: Literal["fast", "slow"] = "fast",
        copy: str | None = None,
    ) -> str:
        """Take everything else."""
        return ""

    @tool
    async def nothing(self) -> None:
        """Take nothing."""


def parameters(name: str) -> dict[str, Any]:
    return tools_of(Toolbox)[name].spec["parameters"]


def test_simple_types_and_the_docstring_make_the_schema() -> None:
    assert tools_of(Toolbox)["plain"].spec["description"] == "Take everything simple."
    assert parameters("plain") == {
        "type": "object",
        "properties": {
            "number": {"type": "integer", "description": "how many"},
            "ratio": {"type": "number", "description": "a share, between 0 and 1"},
            "text": {"type": "string"},
            "flag": {"type": "boolean"},
        },
        "required": ["number", "ratio", "text", "flag"],
        "additionalProperties": False,
    }


def test_containers_literals_options_models_and_typed_dicts() -> None:
    schema = parameters("rich")
    assert schema["required"] == ["names", "table", "point", "size"]
    assert schema["properties"]["names"] == {"type": "array", "items": {"type": "string"}}
    assert schema["properties"]["table"] == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert schema["properties"]["mode"] == {"type": "string", "enum": ["fast", "slow"], "default": "fast"}
    assert schema["properties"]["copy"] == {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    assert set(schema["$defs"]) == {"Point", "Size"}
    assert schema["$defs"]["Point"]["properties"]["x"] == {"type": "integer"}


def test_no_parameters_is_an_empty_object() -> None:
    assert parameters("nothing") == {"type": "object", "properties": {}, "additionalProperties": False}


def test_the_schema_is_built_once_per_class_and_is_json() -> None:
    assert tools_of(Toolbox) is tools_of(Toolbox)
    assert list(tools_of(Toolbox)) == ["plain", "rich", "nothing"]
    json.dumps([t.spec for t in tools_of(Toolbox).values()])


def test_arguments_are_checked_and_converted() -> None:
    rich = tools_of(Toolbox)["rich"]
    read = rich.read('{"names": ["a"], "table": {"b": "2"}, "point": {"x": 1}, "size": {"width": 3}}')
    assert read == {"names": ["a"], "table": {"b": 2}, "point": Point(x=1), "size": {"width": 3}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{oops", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"n": ' + "9" * 5000 + "}", "not valid JSON"),
        ("[1]", "must be a JSON object"),
        ({"n": "x"}, "n: Input should be a valid integer"),
        ({}, "n: Field required"),
        ({"n": 1, "m": 2}, "m: Extra inputs are not permitted"),
    ],
)
def test_bad_arguments_are_explained(arguments: Any, message: str) -> None:
    with pytest.raises(BadCallError, match=message):
        tools_of(Desk)["add"].read(arguments)


def test_a_missing_annotation_is_an_error_for_the_author() -> None:
    class Unsaid:
        @tool
        def f(self, x) -> None: ...  # type: ignore[no-untyped-def]

    class Star:
        @tool
        def f(self, *x: int) -> None: ...

    class Told:
        @tool
        def f(self, ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match=r"@tool Told\.f: .*the episode is self\.ctx"):
        tools_of(Told)
    with pytest.raises(ConfigError, match=r"@tool Unsaid\.f: parameter 'x' has no annotation"):
        tools_of(Unsaid)
    with pytest.raises(ConfigError, match="write plain parameters"):
        tools_of(Star)


def calls(*named: tuple[str, Any]) -> Message:
    named_calls = [{"id": f"c{i}", "function": {"name": n, "arguments": a}} for i, (n, a) in enumerate(named)]
    return {"role": "assistant", "content": "", "tool_calls": named_calls}  # type: ignore[typeddict-item]


async def test_a_call_without_a_name_is_answered_as_one_that_cannot_be_read() -> None:
    driver = EnvDriver(Desk(start=5))
    await driver.reset(Task("desk"))
    [answer] = (await driver.step(calls(("", {"n": 1})))).messages
    known = "Known: add, break_down, fail, hang."
    assert answer["content"] == f"error: the call cannot be read: it names no tool. {known}"
    await driver.close()


async def test_calls_of_one_turn_run_in_order_and_each_gets_an_answer() -> None:
    driver = EnvDriver(Desk(start=5))
    start = await driver.reset(Task("desk"))
    assert [spec["name"] for spec in start.tools] == ["add", "fail", "hang", "break_down"]
    oops = "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    message = calls(("add", {"n": 1}), ("add", '{"n": 2}'), ("ad", {}), ("add", "{"), ("fail", {}), ("hang", {}))
    result = await driver.step(message)
    assert [m["tool_call_id"] for m in result.messages] == [f"c{i}" for i in range(6)]
    assert [m["content"] for m in result.messages] == [
        "6",
        "8",
        "error: unknown tool 'ad'. Did you mean 'add'? Known: add, break_down, fail, hang.",
        f"error: the arguments are not valid JSON: {oops}",
        "error: ValueError: no such thing",
        "error: Desk.hang ran longer than 1 s",
    ]
    assert not result.done
    assert (await driver.step("I am done")).done
    await driver.close()


async def test_an_infrastructure_failure_is_raised_and_not_reported_to_the_model() -> None:
    driver = EnvDriver(Desk())
    await driver.reset(Task("desk"))
    with pytest.raises(InfraError, match="sandbox lost"):
        await driver.step(calls(("break_down", {})))
    await driver.close()
