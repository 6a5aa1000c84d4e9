"""Tools offered for one episode: opened and closed with it, whatever happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Self

import pytest

from agentrl.env import BadCallError, Context, EnvDriver, Limits, Message, Task, Tool, tool, waiting
from agentrl.errors import DeadlineError, EnvError
from tests.unit.env.test_tools import calls
from tests.unit.env.worlds import Desk, Echo


class Clock:
    """A toolset without a context manager."""

    def __init__(self, hour: int = 9) -> None:
        self.hour = hour

    @tool
    def time(self) -> str:
        """Tell the time."""
        return f"{self.hour}:00"


class Service:
    """A toolset that is opened and closed, and can hang in both."""

    def __init__(self, log: list[str], name: str = "ring", hangs_at: str = "") -> None:
        self.log, self.name, self.hangs_at = log, name, hangs_at
        self.hanging = asyncio.Event()

    async def __aenter__(self) -> list[Tool]:
        await self.reach("open")
        return [Tool({"name": self.name, "description": "Ring.", "parameters": {"type": "object"}}, self.ring)]

    async def __aexit__(self, *_: object) -> None:
        await self.reach("close")

    async def ring(self, **arguments: Any) -> str:
        await self.reach("call")
        if arguments.get("times") == 0:
            raise BadCallError("ring at least once")
        return f"rings {arguments}"

    async def reach(self, stage: str) -> None:
        self.log.append(f"{stage} {self.name}")
        if self.hangs_at == stage:
            self.hanging.set()
            await asyncio.Event().wait()


class Lobby(Echo):
    """Offers what the test puts into `offers`."""

    limits = Limits(max_turns=8, setup_timeout_s=0.2, tool_timeout_s=0.2, teardown_timeout_s=0.2)
    offers: Iterable[Any] = ()
    log: list[str]
    setup_fails = False

    def tools(self, ctx: Context) -> Iterable[Any]:
        return self.offers

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        self.log.append("setup")
        if self.setup_fails:
            raise KeyError("row")
        return super().setup(task, ctx)

    def teardown(self, ctx: Context) -> None:
        self.log.append("teardown")


def lobby(*offers: Any) -> Lobby:
    env = Lobby()
    env.offers, env.log = offers, []
    return env


async def ask(driver: EnvDriver, name: str, arguments: Any) -> str:
    (message,) = (await driver.step(calls((name, arguments)))).messages
    return str(message["content"])


async def test_offered_tools_are_added_to_the_envs_own() -> None:
    class Both(Desk):
        async def tools(self, ctx: Context) -> Iterable[Any]:
            return [Clock(hour=ctx.task.data)]

    driver = EnvDriver(Both())
    start = await driver.reset(Task("desk", 7))
    assert [spec["name"] for spec in start.tools] == ["add", "fail", "hang", "break_down", "time"]
    assert list(driver.ctx.tools) == [spec["name"] for spec in start.tools]
    assert await ask(driver, "time", {}) == "7:00"
    assert await ask(driver, "time", {"zone": "UTC"}) == "error: zone: Extra inputs are not permitted"
    assert "Did you mean 'time'?" in await ask(driver, "tim", {})
    await driver.reset(Task("desk", 8))
    assert await ask(driver, "time", "") == "8:00"
    await driver.close()


async def test_a_toolset_is_open_from_before_setup_until_after_teardown_newest_closed_first() -> None:
    env = lobby()
    driver = EnvDriver(env)
    env.offers = [Service(env.log, "a"), Clock(), Service(env.log, "b")]
    start = await driver.reset(Task("t"))
    assert [spec["name"] for spec in start.tools] == ["a", "time", "b"]
    assert await ask(driver, "b", {"times": 2}) == "rings {'times': 2}"
    await driver.close()
    await driver.close()
    assert env.log == ["open a", "open b", "setup", "call b", "teardown", "close b", "close a"]


async def test_a_bad_call_error_reaches_the_model_without_its_class_name() -> None:
    env = lobby()
    driver = EnvDriver(env)
    env.offers = [Service(env.log)]
    await driver.reset(Task("t"))
    assert await ask(driver, "ring", {"times": 0}) == "error: ring at least once"
    assert (
        await ask(driver, "ring", "[")
        == "error: the arguments are not valid JSON: Expecting value: line 1 column 2 (char 1)"
    )
    await driver.close()


@pytest.mark.parametrize("fault", ["program", "infra"])
async def test_a_tool_that_hangs_is_reported_to_the_model_or_ends_the_episode_as_declared(fault: Any) -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    driver = EnvDriver(lobby(Tool({"name": "wait", "description": "", "parameters": {}}, wait, silence=fault)))
    await driver.reset(Task("t"))
    if fault == "program":
        assert await ask(driver, "wait", {}) == "error: Lobby.wait ran longer than 0.2 s"
    else:
        with pytest.raises(DeadlineError, match=r"Lobby\.wait ran longer than 0\.2 s") as caught:
            await ask(driver, "wait", {})
        assert caught.value.fault == "infra"
    await driver.close()


async def test_calls_that_use_up_the_time_for_tools_are_answered_and_the_deadline_is_not_reached() -> None:
    async def toil(seconds: float) -> str:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass
        return "done"

    async def queue(seconds: float) -> str:
        with waiting():  # for something shared: not the model's doing
            return await toil(seconds)

    parameters = {"properties": {"seconds": {"type": "number"}}}
    tools = [Tool({"name": run.__name__, "description": "", "parameters": parameters}, run) for run in (toil, queue)]
    driver = EnvDriver(lobby(*tools))
    await driver.reset(Task("t"), deadline_s=0.5)  # 0.25 s for tools
    for _ in range(3):
        assert await ask(driver, "queue", {"seconds": 0.15}) == "done"
    assert await ask(driver, "toil", {"seconds": 0.3}) == "done"
    for name in ("toil", "queue"):
        answer = await ask(driver, name, {"seconds": 0.15})
        assert answer == "error: not run: the time for the tools of this episode, 0.25 s, is used up"
    await driver.close()


async def test_a_toolset_that_cannot_be_opened_in_time_is_the_infrastructures_fault_and_the_others_close() -> None:
    env = lobby()
    driver = EnvDriver(env)
    env.offers = [Service(env.log, "a"), Service(env.log, "b", hangs_at="open")]
    with pytest.raises(DeadlineError, match=r"Lobby\.tools: Service\.enter ran longer than 0\.2 s") as caught:
        await driver.reset(Task("t"))
    assert caught.value.fault == "infra"
    await driver.close()
    assert env.log == ["open a", "open b", "close a"]


async def test_a_toolset_that_does_not_close_blocks_neither_the_episode_nor_others() -> None:
    env = lobby()
    driver = EnvDriver(env)
    env.offers = [Service(env.log, "a"), Service(env.log, "b", hangs_at="close")]
    await driver.reset(Task("t"))
    with pytest.raises(DeadlineError, match=r"Service\.leave ran longer"):
        await driver.close()
    assert env.log[-3:] == ["teardown", "close b", "close a"]


async def test_what_is_open_is_closed_when_setup_fails() -> None:
    env = lobby()
    driver = EnvDriver(env)
    env.offers, env.setup_fails = [Service(env.log)], True
    with pytest.raises(EnvError, match="row"):
        await driver.reset(Task("t"))
    await driver.close()
    assert env.log == ["open ring", "setup", "teardown", "close ring"]


@pytest.mark.parametrize("stage", ["open", "call", "close"])
async def test_an_episode_cancelled_at_any_stage_closes_what_it_opened(stage: str) -> None:
    env = lobby()
    driver = EnvDriver(env)
    env.limits = Limits(max_turns=8)
    service = Service(env.log, "b", hangs_at=stage)
    env.offers = [Service(env.log, "a"), service]

    async def play() -> None:
        try:
            await driver.reset(Task("t"))
            await ask(driver, "b", {})
        finally:
            await driver.close()

    episode = asyncio.create_task(play())
    await service.hanging.wait()
    episode.cancel()
    with pytest.raises(asyncio.CancelledError):
        await episode
    assert env.log[-1] == "close a"


async def test_a_toolset_opened_at_the_moment_of_the_cancellation_is_closed() -> None:
    env = lobby()
    driver = EnvDriver(env)

    class Sudden(Service):
        async def __aenter__(self) -> list[Tool]:
            asyncio.get_running_loop().call_soon(episode.cancel)
            return await super().__aenter__()

    env.offers = [Sudden(env.log)]

    async def play() -> None:
        try:
            await driver.reset(Task("t"))
            await asyncio.Event().wait()
        finally:
            await driver.close()

    episode = asyncio.create_task(play())
    with pytest.raises(asyncio.CancelledError):
        await episode
    assert env.log[0] == "open ring"
    assert env.log[-1] == "close ring"


async def test_duplicate_tools_and_objects_without_tools_are_rejected() -> None:
    with pytest.raises(EnvError, match="Clock offers a second tool named 'time'; leave one out"):
        await EnvDriver(lobby(Clock(), Clock())).reset(Task("t"))
    spec = {"type": "function", "function": {"name": "add"}}
    for offer in (3, "calculator", b"calculator", spec):
        with pytest.raises(EnvError, match=r"tools\(\) offered .*, which has no @tool method; offer objects with"):
            await EnvDriver(lobby(offer)).reset(Task("t"))


@pytest.mark.parametrize("returned", ["calculator", {"time": Clock()}, None])
async def test_tools_that_return_no_list_are_explained(returned: Any) -> None:
    class Lobby(Echo):
        def tools(self, ctx: Context) -> Any:
            return returned

    with pytest.raises(EnvError, match=r"Lobby\.tools returned .*; return a list of objects with @tool methods"):
        await EnvDriver(Lobby()).reset(Task("t"))


async def test_a_toolset_may_be_its_own_context_manager() -> None:
    class Shop(Clock):
        async def __aenter__(self) -> Self:
            self.hour = 10
            return self

        async def __aexit__(self, *_: object) -> None:
            self.hour = 0

    shop = Shop()
    driver = EnvDriver(lobby(shop))
    await driver.reset(Task("t"))
    assert await ask(driver, "time", {}) == "10:00"
    await driver.close()
    assert shop.hour == 0
