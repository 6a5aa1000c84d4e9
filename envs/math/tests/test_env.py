"""The environment ships tasks, grades through the verifier, and its own evidence holds."""

import json
from importlib.metadata import entry_points

import gymnasium
import pytest
from agentrl_math import MathEnv
from agentrl_math.generator import LEVELS, is_held_out
from gymnasium.utils.env_checker import check_env

from agentrl.env import EnvDriver, StopReason, close_shared, env_config, testing, text_of
from agentrl.errors import ConfigError, DataError

DATA = [{"question": f"What is {i} halves?", "answer": f"It is...\n#### {i / 2}"} for i in range(60)]


@pytest.fixture(autouse=True)
async def closed():
    yield
    await close_shared()


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(map(json.dumps, DATA)))
    return str(path)


async def graded(env, task, policy):
    return (await testing.play_signals(env, task, policy))["correct"]


async def check_evidence(env, count):
    """On a sample of either split the oracle scores the maximum, and no canary anything."""
    for task in await testing.sample_tasks(env, count):
        assert (await graded(env, task, env.oracle(task))).value == 1.0, task
        for name, policy in env.canaries(task).items():
            signal = await graded(env, task, policy)
            assert (signal.value, signal.valid) == (0.0, True), (name, task)


async def all_tasks(driver, split):
    return [await driver.task(split, i) for i in range(await driver.size(split))]


@pytest.mark.parametrize("level", LEVELS)
async def test_the_oracle_scores_one_and_the_canaries_nothing(level):
    await check_evidence(MathEnv(level=level), 25)


@pytest.mark.parametrize("options", [{}, {"think": "open"}, {"fallback": "number"}, {"box": "only"}])
async def test_the_oracle_and_canaries_hold_for_data_and_an_open_think(data, options):
    await check_evidence(MathEnv(data=data, **options), 25)


@pytest.mark.parametrize("name", ["math/math500.jsonl", "gsm8k/test.jsonl"])
async def test_the_oracle_and_canaries_hold_for_real_data(name):
    await check_evidence(MathEnv(data=str(testing.data_file(name)), heldout_share=0.5), 15)


async def test_train_is_endless_and_resumes_at_any_index():
    first, again = EnvDriver(MathEnv(level=3)), EnvDriver(MathEnv(level=3))
    assert await first.size("train") is None
    tasks = [await first.task("train", i, seed=7) for i in range(20)]
    assert await again.task("train", 19, seed=7) == tasks[19]
    assert await again.task("train", 5, seed=7) == tasks[5]
    assert [await first.task("train", i, seed=8) for i in range(20)] != tasks


async def test_level_one_tests_on_pairs_it_never_trains_on():
    driver = EnvDriver(MathEnv())
    assert await driver.size("test") == 30
    train = {(await driver.task("train", i)).data.key for i in range(500)}
    assert not any(is_held_out(1, key) for key in train)
    assert not train & {task.data.key for task in await all_tasks(driver, "test")}


async def test_the_prompt_is_short_and_the_answer_is_the_last_number():
    env = MathEnv()
    driver = EnvDriver(env)
    task = await driver.task("test", 0)
    (message,) = (await driver.reset(task)).messages
    assert text_of(message) == task.data.question == "What is 2 + 2?"
    for answer, value in (
        ("2 + 2 = 4", 1.0),
        ("The answer is 4.", 1.0),
        ("2 + 2", 0.0),
        ("It is not 4.", 0.0),
        ("3 or 4", 0.0),
        ("5", 0.0),
        (r"\boxed{2+2}", 0.0),
    ):
        assert (await graded(env, task, [answer])).value == value, answer


async def test_a_level_can_ask_for_marks_alone():
    env = MathEnv(fallback="none")
    task = await EnvDriver(env).task("test", 0)
    for answer, value in (("It is 4.", 0.0), ("Answer: 4", 1.0)):
        assert (await graded(env, task, [answer])).value == value, answer


async def test_templates_and_system_messages_are_used(data):
    driver = EnvDriver(MathEnv(system="Be brief.", template="Q: {question} {x}"))
    system, user = (await driver.reset(await driver.task("test", 0))).messages
    assert (text_of(system), text_of(user)) == ("Be brief.", "Q: What is 2 + 2? {x}")
    (boxed,) = (await EnvDriver(MathEnv(data=data)).reset(await driver.task("test", 0))).messages
    assert "\\boxed{}" in text_of(boxed)


async def test_a_share_of_data_is_held_out_or_another_file(data, tmp_path):
    driver = EnvDriver(MathEnv(data=data, heldout_share=0.3))
    train, test = [{t.data.question for t in await all_tasks(driver, split)} for split in ("train", "test")]
    assert train | test == {row["question"] for row in DATA}
    assert not train & test
    assert test
    other = tmp_path / "test.jsonl"
    other.write_text("\n".join(map(json.dumps, DATA[:10])))
    driver = EnvDriver(MathEnv(data=data, data_heldout=str(other)))
    train, test = [[t.data.question for t in await all_tasks(driver, split)] for split in ("train", "test")]
    assert test == [row["question"] for row in DATA[:10]]
    assert train == [row["question"] for row in DATA[10:]]


async def test_rows_of_two_files_of_one_name_have_ids_of_their_own(data, tmp_path):
    for folder, rows in (("train", DATA[:5]), ("test", DATA[5:])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    files = {"data": str(tmp_path / "train/data.jsonl"), "data_heldout": str(tmp_path / "test/data.jsonl")}
    driver = EnvDriver(MathEnv(**files))
    train, test = [[task.id for task in await all_tasks(driver, split)] for split in ("train", "test")]
    assert (train[0], test[0]) == ("train/data.jsonl:1", "test/data.jsonl:1")
    assert not set(train) & set(test)


async def test_faults_in_data_reach_the_user(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        await EnvDriver(MathEnv(data=str(tmp_path / "none.jsonl"))).size("train")


async def test_a_verdict_nobody_can_give_is_an_invalid_signal(data):
    env = MathEnv(data=data)
    driver = EnvDriver(env)
    task = await driver.task("train", 0)
    await driver.reset(task)
    env.pool.close()
    await driver.step(r"\boxed{\sqrt{2}}")
    (signal,) = await driver.finish(StopReason.ENV_DONE)
    assert (signal.valid, signal.value) == (False, None)
    assert "closed" in signal.reason


async def test_every_policy_key_reaches_the_verifier(tmp_path):
    rows = [
        {"question": "a third?", "answer": "1/3"},
        {"question": "half?", "answer": "50%"},
        {"question": "where?", "answer": "(1,2)"},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    cases = [
        (0, r"\boxed{0.333}", {"rounding": 3}, 1.0),
        (0, r"\boxed{0.333}", {"rounding": "3"}, 1.0),
        (0, r"\boxed{0.333}", {}, 0.0),
        (1, r"\boxed{50}", {"percent": "value"}, 0.0),
        (1, r"\boxed{50}", {}, 1.0),
        (0, r"\boxed{1/3} \boxed{1/2}", {"box": "first"}, 1.0),
        (0, r"<think>\boxed{1/3}", {"think": "ignore"}, 1.0),
        (0, "It is 1/3", {}, 0.0),
        (0, "It is 1/3", {"fallback": "number"}, 1.0),
        (0, r"\boxed{\sqrt{1/9}}", {"form": "value"}, 0.0),
        (0, r"\boxed{\sqrt{1/9}}", {}, 1.0),
        (0, r"\boxed{1/3\text{ cm}}", {"units": "required"}, 0.0),
        (2, r"\boxed{(2,1)}", {"order": "free"}, 1.0),
        (2, r"\boxed{(2,1)}", {}, 0.0),
    ]
    for index, answer, options, value in cases:
        env = MathEnv(data=str(path), data_heldout=str(path), **options)
        assert (await graded(env, await EnvDriver(env).task("test", index), [answer])).value == value, (answer, options)


async def test_tools_are_lent_by_name_and_the_last_turn_answers():
    driver = EnvDriver(MathEnv(level=2, tools=["calculator"], turns=3))
    task = await driver.task("test", 0)
    start = await driver.reset(task)
    assert [tool["name"] for tool in start.tools] == ["calculator"]
    question = task.data.question.removeprefix("What is ").rstrip("?")
    call = {"function": {"name": "calculator", "arguments": {"expression": question}}}
    result = await driver.step({"role": "assistant", "content": "", "tool_calls": [call]})
    assert not result.done
    assert result.messages[0]["content"] == task.data.answer
    assert (await driver.step(f"It is {task.data.answer}.")).done
    (signal,) = await driver.finish(StopReason.ENV_DONE)
    assert (signal.value, driver.max_turns, MathEnv().limits.max_turns) == (1.0, 3, 1)
    await driver.close()
    with pytest.raises(ConfigError, match="Did you mean 'calculator'"):
        env_config(MathEnv, {"tools": ["calculater"]})


def test_unknown_keys_and_values_are_refused():
    with pytest.raises(ConfigError, match=r"env\.level"):
        env_config(MathEnv, {"levle": 1})
    with pytest.raises(ConfigError, match="level"):
        env_config(MathEnv, {"level": 9})


def test_a_template_without_the_question_is_refused_when_the_config_is_made():
    with pytest.raises(ConfigError, match=r"env\.template: does not contain \{question\}.*'Solve it\.'"):
        env_config(MathEnv, {"template": "Solve it."})
    assert env_config(MathEnv, {"template": "Solve {question}"}).template == "Solve {question}"


def test_every_key_is_documented():
    assert all(field.description for field in MathEnv.Config.model_fields.values())


def test_gymnasium_accepts_it():
    assert "math" in {entry.name for entry in entry_points(group="agentrl.envs")}
    check_env(gymnasium.make("agentrl/math-v0").unwrapped, skip_render_check=True)


@pytest.mark.parametrize("missing", ["data", "data_heldout"])
def test_a_file_that_is_not_there_is_refused_before_anything_starts(tmp_path, missing):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"question": "1 + 1?", "answer": "2"}))
    MathEnv(data=str(rows)).preflight()
    with pytest.raises(DataError, match="no such file"):
        MathEnv(**{"data": str(rows), missing: str(tmp_path / "none.jsonl")}).preflight()
