"""Author code that hangs, raises or blocks never blocks an episode, a thread slot or the process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from agentrl.env import Context, EnvDriver, Limits, Message, Reply, StopReason, Task, Turn
from agentrl.env.driver.threads import THREADS, Threads
from agentrl.env.driver.user_code import AuthorDeadlineError
from agentrl.errors import DeadlineError, EnvError
from tests.unit.env.worlds import Echo, InfraError, Talk


class Hangs(Talk):
    limits = Limits(max_turns=4, setup_timeout_s=0.05, turn_timeout_s=0.05, teardown_timeout_s=0.05)
    where = ""

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        return await self.maybe("setup") or [{"role": "user", "content": "go"}]

    async def respond(self, turn: Turn, ctx: Context) -> Reply:
        return await self.maybe("respond") or Reply.end()

    async def teardown(self, ctx: Context) -> None:
        await self.maybe("teardown")

    async def maybe(self, where: str) -> None:
        if self.where == where:
            await asyncio.Event().wait()


async def play(driver: EnvDriver) -> None:
    await driver.reset(Task("t"))
    await driver.step("x")
    await driver.close()


@pytest.mark.parametrize("where", ["setup", "respond", "teardown"])
async def test_every_method_has_a_deadline(where: str) -> None:
    env = Hangs()
    driver = EnvDriver(env)
    env.where = where
    with pytest.raises(DeadlineError, match=rf"Hangs\.{where} ran longer than 0\.05 s") as caught:
        await play(driver)
    assert isinstance(caught.value, AuthorDeadlineError)
    assert caught.value.fault == "program"
    env.where = ""
    await driver.close()


async def test_a_coroutine_that_ignores_its_cancellation_cannot_block_the_episode() -> None:
    release = asyncio.Event()

    class Stubborn(Hangs):
        async def respond(self, turn: Turn, ctx: Context) -> Reply:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            return Reply.end()

    driver = EnvDriver(Stubborn())
    await driver.reset(Task("t"))
    began = time.monotonic()
    with pytest.raises(DeadlineError):
        await driver.step("x")
    assert time.monotonic() - began < 5
    release.set()
    await asyncio.sleep(0)
    await driver.close()


async def test_a_hanging_thread_is_replaced_and_its_slot_comes_back() -> None:
    threads, release, before = Threads(size=1), threading.Event(), set(threading.enumerate())
    with pytest.raises(DeadlineError):
        await threads.run(release.wait, 0.05, "hang")
    assert threads.lost == 1
    runner = await threads.run(threading.current_thread, 5, "next")
    (hung,) = [t for t in threading.enumerate() if t.name == "agentrl-env" and t not in before and t is not runner]
    release.set()
    await asyncio.to_thread(hung.join, 5)
    assert (hung.is_alive(), threads.lost) == (False, 0)


async def test_waiting_for_a_thread_does_not_count_against_the_deadline() -> None:
    threads, held, release = Threads(size=1), threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        release.wait(30)

    holding = asyncio.create_task(threads.run(hold, 30, "hold"))
    assert await asyncio.to_thread(held.wait, 30)
    limit_s = 2.0
    waiting = asyncio.create_task(threads.run(lambda: 7, limit_s, "waits"))
    done, _ = await asyncio.wait({waiting}, timeout=limit_s + 0.5)
    assert not done
    release.set()
    assert (await waiting, await holding, threads.lost) == (7, None, 0)


async def test_too_many_hanging_threads_are_refused_by_name() -> None:
    threads, release = Threads(size=2, max_lost=2), threading.Event()
    for _ in range(2):
        with pytest.raises(DeadlineError):
            await threads.run(release.wait, 0.02, "Env.setup")
    with pytest.raises(EnvError, match=r"Env\.tasks: 2 earlier calls hang in threads \(Env\.setup\); add"):
        await threads.run(release.wait, 0.02, "Env.tasks")
    release.set()


async def test_a_cancelled_episode_abandons_its_thread() -> None:
    threads, release, running = Threads(size=1), threading.Event(), threading.Event()

    def block() -> None:
        running.set()
        release.wait()

    task = asyncio.create_task(threads.run(block, 30, "block"))
    await asyncio.to_thread(running.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await threads.run(lambda: 1, 5, "next") == 1
    release.set()


def test_a_hanging_env_does_not_keep_the_process_alive() -> None:
    program = """
import asyncio, threading
from agentrl.env.driver.threads import THREADS
from agentrl.errors import DeadlineError
async def main():
    try:
        await THREADS.run(threading.Event().wait, 0.05, "hang")
    except DeadlineError:
        print("given up")
asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True)
    assert ended.stdout == "given up\n"


async def test_a_machine_without_more_threads_lets_calls_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, held, release = Threads(size=2), threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        release.wait(30)

    def refuse(_: threading.Thread) -> None:
        release.set()
        raise RuntimeError("can't start new thread")

    holding = asyncio.create_task(threads.run(hold, 30, "hold"))
    assert await asyncio.to_thread(held.wait, 30)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert await threads.run(lambda: 7, 30, "waits") == 7
        alone, ran = Threads(), list[str]()
        with pytest.raises(RuntimeError, match="can't start"):
            await alone.run(lambda: ran.append("refused"), 30, "first")
    await alone.run(lambda: ran.append("second"), 30, "second")
    assert (await holding, threads.lost, ran) == (None, 0, ["second"])


@pytest.mark.parametrize(
    ("module", "pool"),
    [*(("env.driver.threads", pool) for pool in ("THREADS", "PLAYS", "STAND_INS")), ("rollout.session", "RENDERING")],
)
def test_a_forked_child_starts_threads_of_its_own(module: str, pool: str) -> None:
    program = f"""
import asyncio, os
from agentrl.{module} import {pool}
def ask():
    return asyncio.run({pool}.run(lambda: 7, 5, "ask"))
ask()
child = os.fork()
if child == 0:
    os._exit(ask())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True)
    assert ended.stdout == "7\n"


async def test_an_error_of_setup_names_its_line() -> None:
    class Raises(Echo):
        def setup(self, task: Task, ctx: Context) -> list[Message]:
            raise KeyError("row")

    with pytest.raises(EnvError, match=r"Raises\.setup raised KeyError: 'row' \(test_deadlines\.py:\d+\)") as caught:
        await EnvDriver(Raises()).reset(Task("t"))
    assert isinstance(caught.value.__cause__, KeyError)


async def test_an_exception_with_a_fault_is_raised_unchanged() -> None:
    class Lost(Echo):
        async def respond(self, turn: Turn, ctx: Context) -> Reply:
            raise InfraError("no route")

    driver = EnvDriver(Lost())
    await driver.reset(Task("t"))
    with pytest.raises(InfraError):
        await driver.step("x")


async def test_teardown_runs_once_however_often_the_env_is_closed() -> None:
    ended: list[str] = []

    class Ends(Echo):
        def teardown(self, ctx: Context) -> None:
            ended.append(ctx.task.id)

    driver = EnvDriver(Ends())
    await driver.reset(Task("a"))
    await driver.reset(Task("b"))
    await driver.close()
    await driver.close()
    assert ended == ["a", "b"]


@pytest.mark.parametrize("env_class", [Echo, Talk])
async def test_a_thousand_episodes_at_once(env_class: type[Echo]) -> None:
    async def play(number: int) -> float:
        driver = EnvDriver(env_class())
        await driver.reset(await driver.task("train", number % 10), member=number)
        while not (await driver.step("3")).done:
            pass
        signals = await driver.finish(StopReason.ENV_DONE)
        await driver.close()
        return sum(s.value for s in signals if s.value is not None)

    rewards = await asyncio.gather(*(play(number) for number in range(1000)))
    assert sum(rewards) == (100 if env_class is Echo else 8000)
    assert THREADS.lost == 0
    assert sum(t.name == "agentrl-env" for t in threading.enumerate()) <= THREADS.size + 8
