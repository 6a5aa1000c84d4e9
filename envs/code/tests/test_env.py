"""The environment ships tasks, grades through the sandbox, leaves nothing behind, and its own evidence holds."""

import asyncio
import json
from pathlib import Path

import gymnasium
import pytest
from agentrl_code import CodeEnv, Grader
from agentrl_code.generator import LEVELS
from agentrl_code.grader import RETRY
from agentrl_code.verdict import Result, Status, Verdict
from agentrl_sandbox import Pool, SandboxError, leases
from gymnasium.utils.env_checker import check_env

from agentrl.env import EnvDriver, StopReason, close_shared, env_config, resolve, shared, testing, text_of
from agentrl.errors import ConfigError, DataError, EnvError

MBPP = [
    {"text": f"Write a function to add {i} to a number.", "code": f"def add(x):\n    return x + {i}",
     "test_list": [f"assert add(1) == {1 + i}", f"assert add(2) == {2 + i}", f"assert [add(-5)] == [{i - 5}]"]}
    for i in range(60)
]  # fmt: skip
LOOP = "```python\ndef f(x):\n    while True: pass\n```"


@pytest.fixture(autouse=True)
async def closed(backend):
    yield
    await close_shared()
    assert not list(leases.recorded())


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(map(json.dumps, MBPP)))
    return str(path)


async def play(env, task, policy):
    """The signals of an episode, by name, and what the env replies."""
    episode = [stage async for stage in testing.moments(env, task, policy)]
    replies = [text_of(message) for stage in episode[:-1] for message in stage.result.messages]
    return testing.signals_of(episode), replies


async def solved(env, task, policy):
    signals, _ = await play(env, task, policy)
    assert signals["solved"].valid, signals["solved"].reason
    return signals["solved"].value


async def check_evidence(make, count):
    """On a sample of either split the oracle scores the maximum, and no canary anything."""

    async def check(task):
        env = make()
        assert await solved(env, task, env.oracle(task)) == 1.0, task
        for name, policy in env.canaries(task).items():
            assert await solved(env, task, policy) == 0.0, (name, task)

    await asyncio.gather(*map(check, await testing.sample_tasks(make(), count)))


@pytest.mark.parametrize(("turns", "count"), [(1, 4), (3, 2)])
@pytest.mark.parametrize("level", LEVELS)
async def test_the_oracle_scores_one_and_the_canaries_nothing(level, turns, count):
    await check_evidence(lambda: CodeEnv(level=level, turns=turns), count)


async def test_the_oracle_and_canaries_hold_for_data(data):
    await check_evidence(lambda: CodeEnv(data=data, turns=2), 3)


async def test_a_failing_public_test_is_told_and_a_hidden_one_never(data):
    env = CodeEnv(data=data, turns=3)
    task = await EnvDriver(env).task("train", 0)
    wrong, right = "```python\ndef add(x):\n    return 99\n```", env.oracle(task)[0]
    wanted = 1 + int(task.data.question.split(" add ")[1].split()[0])
    signals, replies = await play(env, task, [wrong, "I give up", right])
    assert signals["solved"].value == 1.0
    assert replies[1].startswith(f"add(1): gave 99, but {wanted} was expected.\n\nFix the program.")
    assert replies[2].startswith("I cannot find a program.")
    by_heart = f"```python\ndef add(x):\n    return {wanted}\n```"
    signals, replies = await play(env, task, [by_heart])
    assert (signals["solved"].value, signals["share"].value, len(replies)) == (0.0, 1 / 3, 1)


async def test_the_last_turn_is_what_counts():
    env = CodeEnv(turns=2)
    task = await EnvDriver(env).task("train", 0)
    wrong = "```python\ndef f(x): return 0.5\n```"
    assert await solved(env, task, [wrong, *env.oracle(task)]) == 1.0
    assert await solved(env, task, [wrong, "hm"]) == 0.0


async def test_an_episode_that_was_cut_is_scored_by_its_last_turn():
    driver = EnvDriver(CodeEnv(turns=4))
    task = await driver.task("train", 0)
    await driver.reset(task)
    await driver.step(LOOP.replace("while True: pass", "return None"))
    signals = await driver.finish(StopReason.MAX_TOKENS)
    assert [(signal.name, signal.value) for signal in signals] == [("solved", 0.0), ("share", 0.0), ("format", 1.0)]
    await driver.close()


async def test_train_is_endless_and_resumes_at_any_index():
    first, again = EnvDriver(CodeEnv(level=3)), EnvDriver(CodeEnv(level=3))
    assert await first.size("train") is None
    tasks = [(await first.task("train", i, seed=7)).id for i in range(20)]
    assert (await again.task("train", 19, seed=7)).id == tasks[19]
    assert (await again.task("train", 5, seed=7)).id == tasks[5]
    assert [(await first.task("train", i, seed=8)).id for i in range(20)] != tasks


async def test_a_share_of_data_is_held_out_or_another_file(data, tmp_path):
    async def keys(driver, split):
        return [(await driver.task(split, i)).data.key for i in range(await driver.size(split))]

    driver = EnvDriver(CodeEnv(data=data, heldout_share=0.3))
    train, test = await keys(driver, "train"), await keys(driver, "test")
    assert sorted(train + test) == sorted(row["text"] for row in MBPP)
    assert test
    other = tmp_path / "test.jsonl"
    other.write_text("\n".join(map(json.dumps, MBPP[:10])))
    driver = EnvDriver(CodeEnv(data=data, data_heldout=str(other)))
    assert await keys(driver, "test") == [row["text"] for row in MBPP[:10]]
    assert await keys(driver, "train") == [row["text"] for row in MBPP[10:]]


@pytest.mark.parametrize("count", [1, 64, pytest.param(1000, marks=pytest.mark.timeout(600))])
async def test_many_episodes_at_once(count):
    async def episode(index):
        env = CodeEnv(level=1 + index % 4)
        task = await EnvDriver(env).task("train", index)
        is_right = index % 3 > 0
        answer = env.oracle(task)[0] if is_right else env.canaries(task)["equal to everything"][0]
        return is_right, await solved(env, task, [answer])

    for is_right, value in await asyncio.gather(*map(episode, range(count))):
        assert value == float(is_right)


@pytest.mark.timeout(120)
async def test_programs_that_hang_end_and_block_nobody_else():
    async def episode(index):
        env = CodeEnv(timeout_s=0.3)
        task = await EnvDriver(env).task("train", index)
        return await solved(env, task, [LOOP if index % 2 else env.oracle(task)[0]])

    assert await asyncio.gather(*map(episode, range(16))) == [1.0, 0.0] * 8


WRONG = "```python\ndef {}(*args):\n    return 0.5\n```"


class Single(CodeEnv):
    """Grades one program at a time."""

    @shared
    def grader(self):
        return Grader(at_once=1)


def mended(env, task):
    """A program that fails, then one that passes."""
    return [WRONG.format(task.data.entry), *env.oracle(task)]


def is_free(grader):
    """Whether no program has a seat or a sandbox, and none waits for one."""
    return not (grader._seats.locked() or grader.pool.count.leased or grader.pool.count.waiting)


async def test_an_episode_cancelled_wherever_it_waits_leaves_nothing(data):
    cuts = []
    async for cut in testing.cancel_everywhere(lambda: Single(data=data, turns=2), mended):
        cuts.append(cut)
        assert not cut.passed or is_free(cut.env.grader), cut
    assert testing.model_turns(cuts) == [1, 2, 3, 4]  # the reset, two turns, the signals
    grading = {(over, name) for over in (1, 3) for name in ("Pool._wait", "OrderedSandbox.run")}
    assert testing.waits(cuts) >= grading | {(0, "EnvDriver.task"), (3, "Trial.result")}


async def test_a_program_that_hangs_is_killed_with_its_episode():
    cuts = []
    async for cut in testing.cancel_everywhere(lambda: Single(timeout_s=0.3), lambda env, task: [LOOP]):
        cuts.append(cut)
        assert not cut.passed or is_free(cut.env.grader), cut
    assert (2, "OrderedSandbox.run") in testing.waits(cuts)


async def test_an_episode_cancelled_in_the_queue_for_a_seat_leaves_it():
    env = Single()
    driver = EnvDriver(env)
    task = await driver.task("train", 0)
    await driver.reset(task)
    await driver.step(env.oracle(task)[0])
    async with env.grader._seats:
        episode = asyncio.create_task(driver.finish(StopReason.ENV_DONE))
        while not env.grader._seats._waiters:  # noqa: ASYNC110 (a semaphore offers no event)
            await asyncio.sleep(0)
        episode.cancel()
        with pytest.raises(asyncio.CancelledError):
            await episode
    assert is_free(env.grader)
    await driver.close()


async def test_interleaved_twins_see_the_same_and_touch_nobody():
    def policy(env, task):
        return ["hm", *mended(env, task)]

    one, member, other, others_member = await testing.check_twins(lambda: CodeEnv(turns=4), policy, tasks=1)
    assert one == member
    assert other == others_member
    assert one != other
    assert [signal.value for signal in one[-1]] == [1.0, 1.0, 1.0]


async def test_a_sandbox_that_fails_makes_the_signal_invalid(monkeypatch):
    async def take(self, wait_s=60.0):
        raise SandboxError("no luck")

    monkeypatch.setattr(Pool, "take", take)
    env = CodeEnv()
    driver = EnvDriver(env)
    task = await driver.task("train", 0)
    signals, _ = await play(env, task, env.oracle(task))
    assert (signals["solved"].valid, signals["solved"].value) == (False, None)
    assert "no luck" in signals["solved"].reason
    assert signals["format"].value == 1.0
    env = CodeEnv(turns=2)  # a turn lost to the machinery is not the program's
    driver = EnvDriver(env)
    with pytest.raises(SandboxError, match="no luck") as caught:
        await play(env, task, env.oracle(task))
    assert caught.value.fault == "infra"
    await driver.close()


FORGER = """
import os, sys
def f(x):
    frame = sys._getframe()
    while "nonce" not in frame.f_locals:
        frame = frame.f_back
    sys.modules["agentrl_code.inside.candidate"].channel.say(frame.f_locals["nonce"], "[")
    os._exit(0)
"""
ESCAPES = {
    "an unreadable answer": FORGER,
    "an end at loading": "import os\nos._exit(0)\n",
    "a closed channel": "import os\nos.closerange(0, 256)\ndef f(x): return 1\n",
    "a text that no tokenizer takes": "def f(x): raise ValueError('\\ud800')\n",
    "no end": "def f(x):\n    while True: pass\n",
    "a ruined sandbox": "import os\nhere = os.getcwd()\nos.chdir('/')\nos.rmdir(here)\nopen(here, 'w').close()\n"
    "def f(x): os._exit(0)\n",
}


@pytest.mark.parametrize("name", ESCAPES)
async def test_no_hostile_program_is_spared(name):
    env = CodeEnv(turns=2, timeout_s=0.5)
    task = await EnvDriver(env).task("train", 0)
    answer = f"```python\n{ESCAPES[name]}```"
    signals, replies = await play(env, task, [answer, answer])
    assert len(replies) == 2  # it was told, and asked again
    replies[1].encode()
    for signal in signals.values():
        assert signal.valid, signal
    assert (signals["solved"].value, signals["share"].value) == (0.0, 0.0)


async def test_a_task_that_tests_nothing_is_invalid_and_not_the_programs_loss(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"prompt": "Add.", "tests": ["for x in []:\n    assert f(x) == 2"]}))
    env = CodeEnv(data=str(path), data_heldout=str(path), turns=2)
    task = await EnvDriver(env).task("test", 0)
    signals, _ = await play(env, task, ["```python\ndef f(x): return 2\n```"])
    assert (signals["solved"].valid, signals["solved"].value) == (False, None)


async def test_faults_in_data_reach_the_user(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        await EnvDriver(CodeEnv(data=str(tmp_path / "none.jsonl"))).size("train")


async def test_a_task_without_a_reference_has_no_oracle(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"prompt": "Add.", "tests": ["assert f(1) == 2"]}))
    env = CodeEnv(data=str(path), data_heldout=str(path))
    with pytest.raises(EnvError, match="no reference"):
        env.oracle(await EnvDriver(env).task("test", 0))


def test_unknown_keys_and_values_are_refused():
    with pytest.raises(ConfigError, match=r"env\.turns"):
        env_config(CodeEnv, {"turn": 2})
    with pytest.raises(ConfigError, match="level"):
        env_config(CodeEnv, {"level": 9})


def test_every_key_is_documented():
    assert all(field.description for field in CodeEnv.Config.model_fields.values())


async def test_the_float_tolerance_and_the_system_message_are_used(tmp_path):
    path = tmp_path / "x.jsonl"
    row = {"prompt": "Halve.", "entry_point": "f", "tests": [{"args": [1], "expected": 0.5}]}
    path.write_text(json.dumps(row))
    answer = ["```python\ndef f(x): return x * 0.5000001\n```"]
    for tolerance, value in ((0.0, 0.0), (1e-3, 1.0)):
        env = CodeEnv(data=str(path), data_heldout=str(path), float_tolerance=tolerance, system="Be brief.")
        task = await EnvDriver(env).task("test", 0)
        _, replies = await play(env, task, answer)
        assert replies[0] == "Be brief."
        assert await solved(env, task, answer) == value


@pytest.mark.parametrize("turns", [1, 3])
def test_gymnasium_accepts_it(turns):
    assert resolve(str(Path(__file__).parents[1])).__name__ == "CodeEnv"
    check_env(gymnasium.make("agentrl/code-v0", turns=turns).unwrapped, skip_render_check=True)
    testing.close_shared_sync()  # its sandboxes stay for the next episode


def test_a_synchronous_episode_is_graded():
    env = gymnasium.make("agentrl/code-v0").unwrapped
    env.reset(seed=0, options={"index": 0})
    _, reward, is_done, is_cut, _ = env.step(env.env.oracle(env.env.ctx.task)[0])
    assert (reward, is_done, is_cut) == (1.0, True, False)
    env.close()
    testing.close_shared_sync()


def test_a_run_says_where_programs_run(backend):
    assert CodeEnv().preflight().startswith("Programs run in sandboxes by ")


async def test_programs_import_the_packages_that_the_config_names():
    env = CodeEnv(env_config(CodeEnv, {"level": 1, "packages": "numpy, sympy"}))
    assert env.preflight().endswith(" with numpy, sympy.")
    task = await EnvDriver(env).task("test", 0)
    (answer,) = env.oracle(task)
    answer = answer.replace("```python\n", "```python\nimport numpy, sympy\n")
    assert await solved(env, task, [answer]) == 1.0
    assert await solved(CodeEnv(level=1), task, [answer]) == 0.0
    with pytest.raises(SandboxError, match=r"'no-such' is not installed\. pip install no-such"):
        CodeEnv(packages=["no-such"]).preflight()


@pytest.mark.parametrize("missing", ["data", "data_heldout"])
def test_a_file_that_is_not_there_is_refused_before_anything_starts(tmp_path, missing):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"prompt": "f", "tests": ["assert f(1) == 1"], "entry_point": "f"}))
    CodeEnv(data=str(rows)).preflight()
    with pytest.raises(DataError, match="no such file"):
        CodeEnv(**{"data": str(rows), missing: str(tmp_path / "none.jsonl")}).preflight()


async def test_a_grading_that_is_cut_short_is_not_made_again(data, monkeypatch):
    env, asked = CodeEnv(data=data), []

    async def cut(*args):
        asked.append(args)
        raise asyncio.CancelledError

    monkeypatch.setattr(CodeEnv, "_grade", cut)
    task = await EnvDriver(env).task("train", 0)
    signals, _ = await play(env, task, env.oracle(task))
    assert not signals["solved"].valid
    assert not signals["share"].valid
    assert len(asked) == 1


async def test_all_tests_of_a_program_end_well_before_the_scoring_does(data, monkeypatch):
    env, policies = CodeEnv(data=data), []

    async def grade(_, __, ___, policy, *____):
        policies.append(policy)
        return Verdict.of((Result(Status.PASSED),))

    monkeypatch.setattr(Grader, "grade", grade)
    task = await EnvDriver(env).task("train", 0)
    await play(env, task, env.oracle(task))
    assert policies
    for policy in policies:
        assert policy.wait_s + 2 * RETRY * policy.total_s < env.limits.score_timeout_s
        assert policy.limits.wall_s == 3 * env.config.timeout_s


class Slow(CodeEnv):
    """Each trial of a program takes two fifths of the time for trials."""

    async def respond(self, turn, ctx):
        self.tool_time = ctx.tool_time
        return await super().respond(turn, ctx)

    async def _grade(self, *args):
        verdict = await super()._grade(*args)
        self.tool_time.spent_s += 0.4 * self.tool_time.limit_s
        return verdict


async def test_trying_programs_takes_a_share_of_an_episode_and_no_more(monkeypatch):
    granted, plain = [], Grader.grade

    async def grade(self, program, tests, policy, *options):
        granted.append(policy.total_s)
        return await plain(self, program, tests, policy, *options)

    monkeypatch.setattr(Grader, "grade", grade)
    driver = EnvDriver(Slow(turns=8))
    task = await driver.task("train", 0)
    await driver.reset(task, deadline_s=100.0)
    wrong = "```python\ndef f(*args): return 'no'\n```"
    replies = [await driver.step(wrong) for _ in range(4)]
    most = [50.0 * left / (1 + RETRY) for left in (1.0, 0.6, 0.2)]
    assert [total_s <= limit_s for total_s, limit_s in zip(granted, most, strict=True)] == [True] * 3
    assert ["No time is left" in text_of(reply.messages[0]) for reply in replies[:3]] == [False, False, True]
    assert [reply.done for reply in replies] == [False, False, False, True]
    signals = await driver.finish(StopReason.ENV_DONE)
    assert signals[0].value == 0.0
    await driver.close()
