"""Tool-integrated reasoning: `--env.tools python`, for one episode and for a thousand, whatever becomes of them."""

import asyncio
import time

import pytest
from agentrl_math import MathEnv
from agentrl_sandbox import LostError, Pool, UnavailableError, choose, leases
from agentrl_tools.workspace import pools

from agentrl.env import StopReason, close_shared, load_config
from agentrl.errors import ConfigError
from agentrl.rollout.boundary import Phase, boundary

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
    assert pools.held().pools == {}
    assert list(leases.recorded()) == []


@pytest.fixture(params=["python:bubblewrap", "python:process"])
def lent(request):
    try:
        choose(request.param.partition(":")[2])
    except UnavailableError as error:
        pytest.skip(str(error))
    return request.param


def leased():
    return sum(pool.count.leased + pool.count.waiting for pool in pools.held().pools.values())


def code(text, tool="python"):
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": tool, "arguments": {"code": text}}}],
    }


def question(task):
    return task.data.question.removeprefix("What is ").rstrip("?").replace("×", "*")  # noqa: RUF001


async def solved(env, index, seed=0, member=0):
    """An episode that computes in two calls, and answers with what came back; its messages and its reward."""
    task = await env.atask("test", index)
    await env.areset(task, seed=seed, member=member)
    try:
        await env.astep(code(f"value = {question(task)}"))
        result = await env.astep(code("value"))
        assert (await env.astep(f"It is {result.messages[0]['content']}.")).done
        (signal,) = await env.afinish(StopReason.ENV_DONE)
        return list(env.ctx.messages), signal.value
    finally:
        await env.aclose()


async def test_a_policy_computes_in_a_session_and_answers(lent):
    env = MathEnv(level=2, tools=lent)
    messages, value = await solved(env, 0)
    assert value == 1.0
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert env.limits.max_turns == 8


async def test_the_oracle_and_the_canaries_hold_with_tools_and_take_no_sandbox():
    env = MathEnv(level=2, tools=["python:process", "files"])
    task = await env.atask("test", 0)
    for policy, value in [(env.oracle(task), 1.0), *((policy, 0.0) for policy in env.canaries(task).values())]:
        await env.areset(task)
        await env.astep(policy[0])
        (signal,) = await env.afinish(StopReason.ENV_DONE)
        await env.aclose()
        assert signal.value == value
    assert pools.held().pools == {}


async def test_what_fails_in_a_call_is_told_and_the_episode_goes_on(lent):
    env = MathEnv(level=2, tools=lent)
    task = await env.atask("test", 0)
    await env.areset(task)
    told = {}
    for text in ("x = 41", "while True: pass", "x + 1", "1 / 0", "import os; os.kill(os.getpid(), 9)", "x"):
        told[text] = (await env.astep(code(text))).messages[0]["content"]
    unknown = (await env.astep(code("1", tool="pyton"))).messages[0]["content"]
    await env.astep(f"It is {task.data.answer}")
    (signal,) = await env.afinish(StopReason.ENV_DONE)
    await env.aclose()
    assert told["while True: pass"].endswith("[stopped after 10 s; variables are kept]")
    assert told["x + 1"] == "42"
    assert told["1 / 0"].endswith("ZeroDivisionError: division by zero")
    assert "exit code -9; the session and its variables are lost" in told["import os; os.kill(os.getpid(), 9)"]
    assert "NameError" in told["x"]
    assert unknown.startswith("error: unknown tool 'pyton'. Did you mean 'python'?")
    assert signal.value == 1.0


async def test_a_sandbox_that_fails_ends_the_episode_as_infrastructure(monkeypatch):
    async def take(self, wait_s=0):
        raise LostError("no luck")

    monkeypatch.setattr(Pool, "take", take)
    env = MathEnv(tools="python:process")
    await env.areset(await env.atask("test", 0))
    with boundary(lambda: Phase.STEP) as caught:
        await env.astep(code("1"))
    await env.aclose()
    assert caught.ending.stop_reason is StopReason.INFRA_ERROR
    assert "no luck" in caught.ending.error


@pytest.mark.parametrize("stage", ["reset", "turn", "queue", "call", "answer"])
async def test_an_episode_cancelled_at_any_stage_leaves_no_sandbox(stage, monkeypatch):
    monkeypatch.setattr(pools, "most", lambda: 1)
    env, other = MathEnv(tools="python:process"), MathEnv(tools="python:process")
    task = await env.atask("test", 0)
    if stage == "queue":
        await other.areset(task)
        await other.astep(code("1"))
    reached = asyncio.Event()

    async def play():
        try:
            await env.areset(task)
            if stage == "turn":
                await env.astep(code("1"))
            if stage in ("reset", "turn"):
                reached.set()
                await asyncio.Event().wait()
            asyncio.get_running_loop().call_later(0.3, reached.set)
            if stage in ("queue", "call"):
                await env.astep(code("while True: pass"))
            await env.astep("4")
            await asyncio.Event().wait()
        finally:
            await env.aclose()

    episode = asyncio.create_task(play())
    await reached.wait()
    episode.cancel()
    with pytest.raises(asyncio.CancelledError):
        await episode
    await other.aclose()
    assert leased() == 0


@pytest.mark.parametrize(("episodes", "with_calls"), [(1, 1), (64, 64), (1000, 64)])
async def test_many_episodes_at_once_share_few_sandboxes(episodes, with_calls, monkeypatch):
    monkeypatch.setattr(pools, "most", lambda: 8)

    async def play(number):
        env = MathEnv(level=2, tools="python:process")
        if number < with_calls:
            return (await solved(env, number % 50, member=number))[1]
        task = await env.atask("test", number % 50)
        await env.areset(task, member=number)
        await env.astep(env.oracle(task)[0])
        (signal,) = await env.afinish(StopReason.ENV_DONE)
        await env.aclose()
        return signal.value

    began = time.monotonic()
    assert await asyncio.gather(*map(play, range(episodes))) == [1.0] * episodes
    (pool,) = pools.held().pools.values()
    assert pool.count.served == with_calls
    print(f"{episodes} episodes, {with_calls} with two calls: {time.monotonic() - began:.1f} s")


async def test_twins_that_run_interleaved_have_equal_transcripts(lent):
    twins = [MathEnv(level=3, tools=lent) for _ in range(2)]
    (first, again) = await asyncio.gather(*(solved(twin, 5, seed=3) for twin in twins))
    assert first == again


def test_the_flag_takes_names_with_commas_between_them():
    assert load_config(MathEnv, {"tools": "python:process,calculator"}).tools == ("python:process", "calculator")
    with pytest.raises(ConfigError, match=r"unknown sandbox backend 'proces'.*process"):
        load_config(MathEnv, {"tools": "python:proces"})


def test_a_machine_without_a_sandbox_is_told_before_anything_starts(monkeypatch):
    def refuse(name):
        raise UnavailableError("no sandbox backend works here. Install it")

    pools.backend.cache_clear()
    monkeypatch.setattr("agentrl_sandbox.choose", refuse)
    with pytest.raises(ConfigError, match=r"tools that run code need a sandbox: .*Install it"):
        load_config(MathEnv, {"tools": "python"})
