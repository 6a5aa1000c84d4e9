"""Tool-integrated reasoning: `--env.tools python`, for one episode and for a thousand, whatever becomes of them."""

import asyncio

import pytest
from agentrl_math import MathEnv
from agentrl_sandbox import LostError, Pool, UnavailableError, choose, leases
from agentrl_tools.workspace import pools

from agentrl.env import EnvDriver, StopReason, close_shared, env_config, testing
from agentrl.errors import ConfigError

pytestmark = [pytest.mark.filterwarnings("ignore:sandbox backend 'process'"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module", autouse=True)
def registry(tmp_path_factory):
    """Sandboxes of these tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(leases.VARIABLE, str(tmp_path_factory.mktemp("leases")))
        yield


@pytest.fixture(autouse=True)
async def closed(registry):
    """The end of a worker: it closes what is shared, and nothing is left."""
    yield
    held = leased()
    await close_shared()
    assert held == 0
    assert pools.own_pools().pools == {}
    assert list(leases.recorded()) == []


@pytest.fixture(params=["python:bubblewrap", "python:process"])
def lent(request):
    try:
        choose(request.param.partition(":")[2])
    except UnavailableError as error:
        pytest.skip(str(error))
    return request.param


def leased():
    return sum(pool.count.leased + pool.count.waiting for pool in pools.own_pools().pools.values())


def code(text, tool="python"):
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": tool, "arguments": {"code": text}}}],
    }


def question(task):
    return task.data.question.removeprefix("What is ").rstrip("?").replace("×", "*")  # noqa: RUF001


async def solved(driver, index, seed=0, member=0):
    """An episode that computes in two calls, and answers with what came back; its messages and its reward."""
    task = await driver.task("test", index)
    await driver.reset(task, seed=seed, member=member)
    try:
        await driver.step(code(f"value = {question(task)}"))
        result = await driver.step(code("value"))
        assert (await driver.step(f"It is {result.messages[0]['content']}.")).done
        (signal,) = await driver.finish(StopReason.ENV_DONE)
        return list(driver.ctx.messages), signal.value
    finally:
        await driver.close()


async def test_a_policy_computes_in_a_session_and_answers(lent):
    driver = EnvDriver(MathEnv(level=2, tools=lent))
    messages, value = await solved(driver, 0)
    assert value == 1.0
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert driver.max_turns == 8


async def test_the_oracle_and_the_canaries_hold_with_tools_and_take_no_sandbox():
    env = MathEnv(level=2, tools=["python:process", "files"])
    for task in await testing.sample_tasks(env, 25):
        for policy, value in [(env.oracle(task), 1.0), *((policy, 0.0) for policy in env.canaries(task).values())]:
            assert testing.values(await testing.play_signals(env, task, policy)) == {"correct": value}, (policy, task)
    assert pools.own_pools().pools == {}


async def test_what_fails_in_a_call_is_told_and_the_episode_goes_on(lent):
    driver = EnvDriver(MathEnv(level=2, tools=lent))
    task = await driver.task("test", 0)
    await driver.reset(task)
    outputs = {}
    for text in ("x = 41", "while True: pass", "x + 1", "1 / 0", "import os; os.kill(os.getpid(), 9)", "x"):
        outputs[text] = (await driver.step(code(text))).messages[0]["content"]
    unknown = (await driver.step(code("1", tool="pyton"))).messages[0]["content"]
    await driver.step(f"It is {task.data.answer}")
    (signal,) = await driver.finish(StopReason.ENV_DONE)
    await driver.close()
    assert outputs["while True: pass"].endswith("[stopped after 10 s; variables are kept]")
    assert outputs["x + 1"] == "42"
    assert outputs["1 / 0"].endswith("ZeroDivisionError: division by zero")
    assert "exit code -9; the session and its variables are lost" in outputs["import os; os.kill(os.getpid(), 9)"]
    assert "NameError" in outputs["x"]
    assert unknown.startswith("error: unknown tool 'pyton'. Did you mean 'python'?")
    assert signal.value == 1.0


def test_a_sandbox_that_fails_ends_the_episode_as_infrastructure(monkeypatch):
    async def take(self, wait_s=0):
        raise LostError("no luck")

    monkeypatch.setattr(Pool, "take", take)
    trajectory = testing.rehearse(MathEnv(tools="python:process"), [code("1")], split="test")
    testing.close_shared_sync()
    assert trajectory.stop_reason is StopReason.INFRA_ERROR
    assert "no luck" in trajectory.error


async def test_an_episode_cancelled_wherever_it_waits_leaves_no_sandbox(lent):
    def computed(env, task):
        return [code("x = 1"), code("x"), *env.oracle(task)]

    cuts = []
    async for cut in testing.cancel_everywhere(lambda: MathEnv(tools=lent), computed, is_loaded=True):
        cuts.append(cut)
        assert leased() == 0, cut
    assert testing.model_turns(cuts) == [1, 2, 3, 4, 5]  # the reset, two calls, an answer, the signal
    calls = {(1, "pool"), (1, "Pool._wait"), (1, "PythonSession.python"), (2, "PythonSession.python")}
    assert testing.waits(cuts) >= calls | {(0, "Toolbox._enter"), (5, "Toolbox._leave")}


async def test_a_call_that_hangs_is_cancelled_and_so_is_one_that_waits_for_its_sandbox(monkeypatch):
    monkeypatch.setattr(pools, "most", lambda: 1)
    calls = []
    for number, text in enumerate(("while True: pass", "1"), 1):
        driver = EnvDriver(MathEnv(tools="python:process"))
        await driver.reset(await driver.task("test", 0))
        calls.append((driver, asyncio.create_task(driver.step(code(text)))))
        while leased() < number:  # noqa: ASYNC110 (a pool offers no more than its count)
            await asyncio.sleep(0.01)
    for driver, call in calls[::-1]:
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await driver.close()
    assert leased() == 0


@pytest.mark.parametrize("episodes", [1, 64, 1000])
async def test_many_episodes_at_once_share_few_sandboxes(episodes, monkeypatch):
    monkeypatch.setattr(pools, "most", lambda: 8)

    async def play(number):
        return (await solved(EnvDriver(MathEnv(level=2, tools="python:process")), number % 50, member=number))[1]

    assert await asyncio.gather(*map(play, range(episodes))) == [1.0] * episodes
    (pool,) = pools.own_pools().pools.values()
    assert pool.count.served == episodes


async def test_twins_that_run_interleaved_have_equal_transcripts(lent):
    twins = [MathEnv(level=3, tools=lent) for _ in range(2)]
    (first, again) = await asyncio.gather(*(solved(EnvDriver(twin), 5, seed=3) for twin in twins))
    assert first == again


def test_the_flag_takes_names_with_commas_between_them():
    assert env_config(MathEnv, {"tools": "python:process,calculator"}).tools == ("python:process", "calculator")
    with pytest.raises(ConfigError, match=r"unknown sandbox backend 'proces'.*process"):
        env_config(MathEnv, {"tools": "python:proces"})


async def test_a_session_can_import_the_configured_packages(lent):
    env = MathEnv(env_config(MathEnv, {"tools": lent, "packages": "numpy, sympy"}))
    driver = EnvDriver(env)
    assert env.preflight().endswith(" with numpy, sympy.")
    await driver.reset(await driver.task("test", 0))
    result = await driver.step(code("import sympy, numpy\nsympy.factorint(int(numpy.prod([6, 35])))"))
    assert result.messages[0]["content"] == "{2: 1, 3: 1, 5: 1, 7: 1}"
    await driver.close()


def test_packages_are_refused_without_a_tool_that_runs_code_and_when_they_are_not_there():
    for tools in ("", "calculator", "files:process"):
        with pytest.raises(ConfigError, match="packages numpy: only tools that run code use them; add python or shell"):
            env_config(MathEnv, {"tools": tools, "packages": "numpy"})
    with pytest.raises(ConfigError, match=r"'no-such' is not installed\. pip install no-such"):
        env_config(MathEnv, {"tools": "python:process", "packages": ["no-such"]})


def test_a_machine_without_a_sandbox_is_told_before_anything_starts(monkeypatch):
    def refuse(name, packages):
        raise UnavailableError("no sandbox backend works here. Install it")

    pools.backend.cache_clear()
    monkeypatch.setattr("agentrl_sandbox.choose", refuse)
    with pytest.raises(ConfigError, match=r"tools that run code need a sandbox: .*Install it"):
        env_config(MathEnv, {"tools": "python"})
