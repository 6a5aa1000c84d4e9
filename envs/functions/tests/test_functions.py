"""The environment draws its problems from a seed, judges calls by their structure, and its own evidence holds.

Its functions do nothing, at once: there is no tool that could hang.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from agentrl_functions import FunctionsEnv, Wanted, mismatch
from agentrl_functions.data import read_problems
from agentrl_functions.generator import KINDS
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.env import EnvDriver, Message, Policy, Signal, Task, env_config, testing
from agentrl.errors import ConfigError, DataError
from agentrl.types import ToolCall, ToolSpec


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    async with testing.no_leaks():
        yield


async def play(env: FunctionsEnv, task: Task, policy: Policy) -> Signal:
    """The verdict on one turn."""
    return (await testing.play_signals(env, task, policy))["right"]


async def check_evidence(env: FunctionsEnv, count: int) -> None:
    """On a sample of either split the oracle scores the maximum, and no canary anything."""
    for task in await testing.sample_tasks(env, count):
        assert (await play(env, task, env.oracle(task))).value == 1.0, task
        for name, policy in env.canaries(task).items():
            verdict = await play(env, task, policy)
            assert (verdict.value, verdict.valid) == (0.0, True), (name, task)


# --- evidence ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_the_oracle_scores_one_and_the_canaries_nothing(kind: str) -> None:
    await check_evidence(FunctionsEnv(kinds=[kind]), 100)


async def test_every_held_out_problem_is_never_trained_on() -> None:
    driver = EnvDriver(FunctionsEnv())
    assert await driver.size("train") is None
    test = {(await driver.task("test", index)).data.messages[0]["content"] for index in range(256)}
    train = {(await driver.task("train", index)).data.messages[0]["content"] for index in range(1000)}
    assert len(test) == await driver.size("test") == 256
    assert not test & train


async def test_tasks_follow_from_the_seed_and_the_index_alone() -> None:
    first, again = EnvDriver(FunctionsEnv()), EnvDriver(FunctionsEnv())
    tasks = [await first.task("train", index, seed=7) for index in range(30)]
    assert await again.task("train", 29, seed=7) == tasks[29]
    assert await again.task("train", 4, seed=7) == tasks[4]
    assert [await first.task("train", index, seed=8) for index in range(30)] != tasks


async def test_each_kind_is_what_it_is_called() -> None:
    for kind in KINDS:
        problems = [task.data for task in await testing.sample_tasks(FunctionsEnv(kinds=[kind]), 40)]
        wanted, offered = {len(p.wanted) for p in problems}, {len(p.tools) for p in problems}
        assert wanted == {"single": {1}, "multiple": {1}, "parallel": {2, 3}, "irrelevant": {0}}[kind]
        assert kind != "multiple" or min(offered) > 1


# --- the episode ------------------------------------------------------------------------------------------------


async def test_the_functions_of_the_task_are_the_tools_of_the_episode() -> None:
    env = FunctionsEnv()
    driver = EnvDriver(env)
    for task in await testing.sample_tasks(env, 3):
        start = await driver.reset(task)
        assert start.tools == task.data.tools
        assert [message["role"] for message in start.messages] == ["system", "user"]
    (message,) = (await EnvDriver(FunctionsEnv(system="")).reset(task)).messages
    assert message["role"] == "user"
    await driver.close()


@pytest.mark.parametrize("count", [1, 64, 1000])
async def test_episodes_at_once_do_not_touch_each_other(count: int) -> None:
    await testing.check_concurrent(FunctionsEnv, count)


async def test_an_episode_cancelled_wherever_it_waits_leaves_nothing() -> None:
    """That is while its tasks are loaded and while the model speaks: neither a function nor the judgement waits."""
    cuts = [cut async for cut in testing.cancel_everywhere(FunctionsEnv)]
    assert testing.model_turns(cuts) == [1, 2, 3]  # the reset, the turn, the signals
    assert {cut.passed for cut in cuts if not cut.is_models_turn} == {0}


async def test_interleaved_twins_see_the_same() -> None:
    one, member, other, others_member = await testing.check_twins(FunctionsEnv, tasks=10)
    assert one == member
    assert other == others_member
    assert one != other


def test_gymnasium_accepts_it() -> None:
    assert "functions" in {entry.name for entry in entry_points(group="agentrl.envs")}
    check_env(gymnasium.make("agentrl/functions-v0").unwrapped, skip_render_check=True)


def test_unknown_keys_and_values_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"env\.kinds"):
        env_config(FunctionsEnv, {"kind": "single"})
    with pytest.raises(ConfigError, match="irrelevant"):
        env_config(FunctionsEnv, {"kinds": ["double"]})
    assert all(field.description for field in FunctionsEnv.Config.model_fields.values())


def test_the_readme_runs() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    for snippet in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(snippet, "README.md", "exec"), {})  # noqa: S102


# --- the rules --------------------------------------------------------------------------------------------------

SPEC = ToolSpec(
    name="book.room",
    description="",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "nights": {"type": "integer"},
            "price": {"type": "number"},
            "quiet": {"type": "boolean"},
            "guests": {"type": "array", "items": {"type": "string"}},
            "address": {"type": "object"},
            "note": {"type": "string"},
        },
        "required": ["city", "nights"],
    },
)
WANTED = Wanted(
    "book.room",
    {
        "city": ["New York", "NYC"],
        "nights": [2],
        "price": ["", 99.5, 100],
        "quiet": ["", True],
        "guests": ["", ["Ana", "Ben"]],
        "address": ["", {"street": ["Main St."], "door": ["", 3]}],
    },
)
LEAST = {"city": "NYC", "nights": 2}


def call(name: str, arguments: Any) -> ToolCall:
    return ToolCall(function={"name": name, "arguments": arguments})


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (LEAST, ""),
        (LEAST | {"city": "new-york"}, ""),
        (LEAST | {"nights": 2.0}, ""),
        (LEAST | {"price": 100, "quiet": True}, ""),
        (LEAST | {"price": 100.0, "guests": ["ana", "ben"]}, ""),
        (LEAST | {"address": {"street": "Main St"}}, ""),
        (LEAST | {"address": {"street": "Main St", "door": 3}}, ""),
        ({"city": "NYC"}, "nights is missing"),
        ({"nights": 2}, "city is missing"),
        (LEAST | {"nights": "2"}, 'nights is "2"'),
        (LEAST | {"nights": 3}, "nights is 3"),
        (LEAST | {"nights": True}, "nights is true"),
        (LEAST | {"quiet": 1}, "quiet is 1"),
        (LEAST | {"quiet": False}, "quiet is false"),
        (LEAST | {"guests": ["Ben", "Ana"]}, "guests is"),
        (LEAST | {"guests": "Ana, Ben"}, "guests is"),
        (LEAST | {"address": {"street": "Main St", "door": 4}}, "address is"),
        (LEAST | {"address": {"door": 3}}, "address is"),
        (LEAST | {"address": {"street": "Main St", "floor": 1}}, "address is"),
        (LEAST | {"note": "hello"}, "note is not wanted"),
        (LEAST | {"stars": 5}, "stars is not wanted"),
        (LEAST | {"price": None}, "price is null"),
        ("{oops", "not a JSON object"),
    ],
)
def test_arguments_are_judged_by_the_schema_and_the_acceptable_values(arguments: Any, fault: str) -> None:
    found = mismatch([call("book.room", arguments)], [WANTED], [SPEC])
    assert bool(found) == bool(fault)
    assert fault in found


def test_names_and_numbers_of_calls_are_judged() -> None:
    assert mismatch([], [WANTED], [SPEC]) == "0 calls instead of 1"
    assert mismatch([call("book_room", LEAST)], [WANTED], [SPEC]) == "book_room instead of book.room"
    assert mismatch([], [], [SPEC]) == ""
    assert mismatch([call("book.room", LEAST)], [], [SPEC]) == "1 calls instead of 0"


def test_parallel_calls_fit_in_whatever_order_and_each_once() -> None:
    strict = Wanted("book.room", {"city": ["NYC"], "nights": [2], "quiet": [True]})
    loose = Wanted("book.room", {"city": ["NYC"], "nights": [2], "quiet": ["", True]})
    calls = [call("book.room", LEAST | {"quiet": True}), call("book.room", LEAST)]
    for wanted in ([strict, loose], [loose, strict]):
        assert mismatch(calls, wanted, [SPEC]) == ""
        assert mismatch(calls[::-1], wanted, [SPEC]) == ""
    assert mismatch([calls[1], calls[1]], [strict, loose], [SPEC]) == "two calls match the same wanted call"


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=True) | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*SPEC["parameters"]["properties"], "x"]), JSON, max_size=6) | st.text())
def test_no_arguments_break_the_judgement(arguments: Any) -> None:
    assert isinstance(mismatch([call("book.room", arguments)], [WANTED], [SPEC]), str)


# --- the leaderboard's files ------------------------------------------------------------------------------------

FUNCTION = {
    "name": "geo.area",
    "description": "Area.",
    "parameters": {
        "type": "dict",
        "properties": {
            "sides": {"type": "tuple", "items": {"type": "float"}},
            "unit": {"type": "string", "optional": True},
            "extra": {"type": "any"},
        },
        "required": ["sides"],
    },
}
ROWS = [
    {"id": f"simple_{n}", "question": [[{"role": "user", "content": f"Area of {n}?"}]], "function": [FUNCTION]}
    for n in range(40)
]
GOLDS = [
    {"id": f"simple_{n}", "ground_truth": [{"geo.area": {"sides": [[n, 1.5]], "unit": ["", "m"]}}]} for n in range(40)
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


async def test_the_leaderboards_rows_are_tasks(tmp_path: Path) -> None:
    data = write(tmp_path / "simple.jsonl", ROWS)
    write(tmp_path / "answers" / "simple.jsonl", GOLDS)
    env = FunctionsEnv(data=data, heldout_share=0.3)
    driver = EnvDriver(env)
    sizes = [await driver.size(split) for split in ("train", "test")]
    assert sum(size or 0 for size in sizes) == 40
    assert all(sizes)
    await check_evidence(env, 40)
    spec = (await driver.task("test", 0)).data.tools[0]["parameters"]
    assert spec["type"] == "object"
    assert spec["properties"] == {
        "sides": {"type": "array", "items": {"type": "number"}},
        "unit": {"type": "string"},
        "extra": {},
    }


@pytest.mark.parametrize(
    ("name", "rows"), [("simple_python", 400), ("multiple", 200), ("parallel", 200), ("irrelevance", 240)]
)
async def test_the_evidence_holds_for_every_row_of_the_leaderboards_own_files(name: str, rows: int) -> None:
    env = FunctionsEnv(data=testing.data_file(f"tools/bfcl/{name}.jsonl"))
    assert len(await testing.sample_tasks(env, rows)) == rows
    await check_evidence(env, rows)


def test_irrelevance_needs_no_answers_and_answers_may_be_named(tmp_path: Path) -> None:
    (problem,) = read_problems(write(tmp_path / "a.jsonl", [ROWS[0] | {"id": "irrelevance_0"}]))
    assert problem.wanted == ()
    (problem,) = read_problems(write(tmp_path / "b.jsonl", ROWS[:1]), write(tmp_path / "gold.jsonl", GOLDS))
    assert problem.wanted[0].arguments["sides"] == [[0, 1.5]]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "x"}, "a.jsonl:1: must be an object with the key 'question'"),
        (ROWS[0], "a.jsonl:1: simple_0 has no ground_truth; give the file"),
        (ROWS[0] | {"ground_truth": [{"geo.volume": {}}]}, "calls geo.volume, which is not offered"),
        (ROWS[0] | {"function": {"name": "f"}, "ground_truth": []}, "function 'f' has no parameters"),
    ],
)
def test_faults_of_a_file_name_their_place(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=re.escape(said)):
        read_problems(write(tmp_path / "a.jsonl", [row]))
    with pytest.raises(DataError, match=re.escape(said)):
        FunctionsEnv(data=tmp_path / "a.jsonl").preflight()
    with pytest.raises(DataError, match="no such file"):
        read_problems(tmp_path / "none.jsonl")


async def test_a_call_that_is_no_json_is_wrong_and_no_error() -> None:
    env = FunctionsEnv(kinds=["single"])
    task = await EnvDriver(env).task("train", 0)
    name = task.data.tools[0]["name"]
    turn = Message(role="assistant", content="", tool_calls=[call(name, "{oops"), call("nothing", {})])
    assert (await play(env, task, [turn])).value == 0.0


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 1e308, 10**4000, nested(5000), {"a": nested(5000)}, "x" * 1_000_000, "\ud800", None],
    ids=range(9),
)
@pytest.mark.parametrize("kind", ["integer", "number", "string", "array", "object", "boolean"])
def test_no_argument_ends_an_episode_without_a_score(kind: str, value: Any) -> None:
    spec = ToolSpec(name="f", description="", parameters={"properties": {"x": {"type": kind}}, "required": ["x"]})
    call = ToolCall(type="function", function={"name": "f", "arguments": {"x": value}})
    fault = mismatch([call], [Wanted("f", {"x": [3, "three", [3], {"a": [3]}]})], [spec])
    assert 0 < len(fault) < 200


def test_long_names_are_cut_in_what_is_kept() -> None:
    spec = ToolSpec(name="f", description="", parameters={})
    long = ToolCall(type="function", function={"name": "g" * 1_000_000, "arguments": {}})
    assert len(mismatch([long], [Wanted("f", {})], [spec])) < 200
    odd = ToolCall(type="function", function={"name": "f", "arguments": {"x" * 1_000_000: 1}})
    assert len(mismatch([odd], [Wanted("f", {})], [spec])) < 200
