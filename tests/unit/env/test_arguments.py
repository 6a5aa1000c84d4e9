"""Tool calls are read within bounds, and every call gets an answer."""

from __future__ import annotations

from typing import Any

import pytest

from agentrl.env import BadCallError, EnvDriver, Message, Task, Tool
from agentrl.env.arguments import as_object
from agentrl.env.driver.tools import MAX_CALLS
from agentrl.env.tools import MAX_CHARACTERS, MAX_NAME_CHARS
from agentrl.types import as_unicode, is_unicode, text_of, why_unsendable
from agentrl.types.arguments import MAX_DEPTH
from tests.unit.env.test_tools import calls
from tests.unit.env.worlds import Desk, InfraError


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ('{"a": "\\ud800"}', "half of a surrogate pair"),
        ({"a": ["x", {"b": "\udfff"}]}, "half of a surrogate pair"),
        ({"\ud800": 1}, "half of a surrogate pair"),
        ('{"a": [1e999]}', "NaN or an infinite number"),
        ('{"a": -Infinity}', "NaN or an infinite number"),
        ({"a": float("nan")}, "NaN or an infinite number"),
        ({"a": nested(MAX_DEPTH)}, "nested deeper than 64 levels"),
        ('{"a": ' + "[" * 100_000, "not valid JSON"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
        (" " * ((1 << 20) + 1), "longer than 1048576 characters"),
        ("[]", "must be a JSON object"),
    ],
    ids=range(11),
)
def test_arguments_that_cannot_be_serialized_are_the_models_error(arguments: Any, message: str) -> None:
    with pytest.raises(BadCallError, match=message):
        as_object(arguments)


def test_arguments_that_can_be_serialized_are_accepted() -> None:
    value = {"a": ["\U0001f4a9 \0 \u0301", 1.5, 10**4000, None, True, nested(MAX_DEPTH - 2)], "a b": {}}
    assert as_object(value) is value
    assert as_object('{"a": 1, "a": "\\ud83d\\udca9"}') == {"a": "\U0001f4a9"}
    assert why_unsendable("plain") == ""
    assert (is_unicode("é?"), is_unicode("é\ud800"), as_unicode("é\ud800")) == (True, False, "é?")


async def open_desk(*offers: Any) -> EnvDriver:
    class Lender(Desk):
        def tools(self, ctx: Any) -> Any:
            return offers

    driver = EnvDriver(Lender())
    await driver.reset(Task("desk"))
    return driver


async def ask(driver: EnvDriver, *named: tuple[str, Any]) -> list[Message]:
    return [message for message in (await driver.step(calls(*named))).messages if message["role"] == "tool"]


async def test_calls_beyond_the_limit_of_a_turn_are_not_run() -> None:
    driver = await open_desk()
    answers = await ask(driver, *[("add", {"n": 1})] * 1000)
    assert len(answers) == 1000
    assert text_of(answers[MAX_CALLS - 1]) == str(MAX_CALLS)
    assert text_of(answers[MAX_CALLS]) == "error: not run: a turn may make 64 calls"
    assert driver.ctx.state.total == MAX_CALLS
    await driver.close()


async def test_long_names_errors_and_answers_are_cut() -> None:
    def shout(kind: str = "", **_: Any) -> str:
        if kind == "error":
            raise ValueError("x" * 1_000_000)
        return "half \ud800" if kind == "half" else "y" * 1_000_000

    driver = await open_desk(Tool({"name": "shout", "description": "", "parameters": {}}, shout))
    (unknown,) = await ask(driver, ("add" * 100_000, {}))
    assert len(text_of(unknown)) < 1000
    assert len(unknown["name"]) == MAX_NAME_CHARS
    (half,) = await ask(driver, ("shout", {"kind": "half"}))
    assert text_of(half) == "half ?"
    (error,) = await ask(driver, ("shout", {"kind": "error"}))
    assert text_of(error) == "error: ValueError: " + "x" * 2000
    (long,) = await ask(driver, ("shout", {}))
    assert text_of(long).endswith(f"[{1_000_000 - MAX_CHARACTERS} more characters]")
    (extra,) = await ask(driver, ("add", {"n": 1} | {f"z{i}": 1 for i in range(10_000)}))
    assert len(text_of(extra)) < 3000
    await driver.close()


@pytest.mark.parametrize(
    ("proof", "is_told"), [("the call broke it", True), ("", False), (InfraError("lost too"), False)]
)
async def test_a_failure_that_a_tool_blames_on_the_call_is_reported_to_the_model(proof: Any, is_told: bool) -> None:
    def fail(**_: Any) -> str:
        raise InfraError("lost")

    async def blame(**arguments: Any) -> str:
        assert arguments == {"x": 1}
        if isinstance(proof, Exception):
            raise proof
        return str(proof)

    driver = await open_desk(Tool({"name": "f", "description": "", "parameters": {}}, fail, blame=blame))
    if is_told:
        assert text_of((await ask(driver, ("f", {"x": 1})))[0]) == "error: the call broke it"
    else:
        with pytest.raises(InfraError, match=r"^lost$"):
            await ask(driver, ("f", {"x": 1}))
    await driver.close()
