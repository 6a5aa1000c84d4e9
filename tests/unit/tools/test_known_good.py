"""A known-good request has the timeout of the request that failed, and loops that end leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from agentrl_tools import known_good
from agentrl_tools.errors import ServiceError
from agentrl_tools.http import Http
from agentrl_tools.loops import ByLoop
from agentrl_tools.search import HttpSearch

from agentrl.env import BadCallError, Context, Env, EnvDriver, Limits, Message, Task, Tool
from tests.unit.env.test_tools import calls
from tests.unit.tools.web import web


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with web() as running:
        yield running


class Timeouts:
    """Records the timeouts of known-good requests as a whole, and of each read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.whole, self.reads = list[float](), list[float]()
        within, send = known_good.within, httpx.AsyncHTTPTransport.handle_async_request

        async def watched(awaitable: Any, timeout_s: float, what: str) -> Any:
            self.whole.append(timeout_s)
            return await within(awaitable, timeout_s, what)

        async def sent(transport: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
            self.reads.append(request.extensions["timeout"]["read"])
            return await send(transport, request)

        monkeypatch.setattr(known_good, "within", watched)
        monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", sent)


async def test_every_query_to_a_search_service_has_the_same_timeout(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts = Timeouts(monkeypatch)
    service = HttpSearch(f"http://127.0.0.1:{server.server_port}/down?q={{query}}", "", timeout_s=33.0)
    with pytest.raises(ServiceError):
        await service.find("x", 1)
    assert (timeouts.whole, timeouts.reads) == ([33.0], [33.0, 33.0])


async def test_every_request_to_a_host_has_the_same_timeout(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts, place = Timeouts(monkeypatch), f"localhost:{server.server_port}"
    tool = Http([place], networks=["127.0.0.0/8"], timeout_s=33.0)
    assert (await tool.http(f"http://{place}/down")).startswith("503")
    assert timeouts.whole == [33.0]
    assert set(timeouts.reads) == {33.0}


async def test_both_schemes_of_a_host_are_requested_at_the_same_time() -> None:
    """One after the other would take twice the timeout."""
    met, asked = list[str](), asyncio.Event()

    class Transport(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.url.scheme == "http":
                await asked.wait()
                met.append("http")
                return httpx.Response(503)
            asked.set()
            return httpx.Response(200)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agentrl_tools.http.CheckedTransport", lambda _: Transport())
        assert await Http(["svc"], timeout_s=5.0)._is_well(httpx.URL("http://svc/"))
    assert met == ["http"]


class Service(httpx.AsyncBaseTransport):
    """A service in this process: its first requests get these statuses, or no answer for None, and all others 200."""

    last_url = httpx.URL("http://svc/slow")

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *first: int | None) -> None:
        self.first, self.came = iter(first), list[str]()
        monkeypatch.setattr("agentrl_tools.http.CheckedTransport", lambda _: self)
        monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", lambda _, sent: self._answer(sent))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        self.came.append(request.url.path)
        if (status := next(self.first, 200)) is None:
            await asyncio.Event().wait()
        return httpx.Response(status or 200, stream=httpx.ByteStream(b"[]"))

    handle_async_request = _answer


async def ask_http(timeout_s: float) -> str:
    tool = Http(["svc"], timeout_s=timeout_s, known_good={"svc": "http://svc/health"})
    return await answer_of(tool.http("http://svc/slow"))


async def ask_search(timeout_s: float) -> str:
    return await answer_of(HttpSearch("http://svc/{query}", "", timeout_s=timeout_s).find("slow", 1))


async def answer_of(call: Awaitable[object]) -> str:
    """The result of the call, or the error that the model reads instead."""
    try:
        return str(await call)
    except BadCallError as error:
        return f"error: {error}"


both = pytest.mark.parametrize(("ask", "health"), [(ask_http, "/health"), (ask_search, "/water")])


@both
async def test_a_request_that_keeps_the_service_busy_for_a_while_is_the_models(
    ask: Callable[[float], Awaitable[str]], health: str, asked_again: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(monkeypatch, None, None)
    assert (await ask(0.1)).startswith("error: ")
    assert service.came == ["/slow", health, health]


@both
async def test_a_request_that_ends_a_service_which_starts_again_is_the_models(
    ask: Callable[[float], Awaitable[str]], health: str, asked_again: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(monkeypatch, 503, 503, 503)
    assert "503" in await ask(20.0)
    assert service.came == ["/slow", health, health, health]


async def test_callers_share_the_answer_of_a_running_known_good_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_good, "FRESH_S", 0.0)
    asked, began, ready = list[int](), asyncio.Event(), asyncio.Event()

    async def request() -> None:
        asked.append(len(asked))
        began.set()
        await ready.wait()

    def ask() -> asyncio.Future[bool]:
        return asyncio.ensure_future(known_good.works("service", request, 20.0))

    first = ask()
    await began.wait()
    others = [ask() for _ in range(3)]
    asyncio.get_running_loop().call_soon(ready.set)
    assert await asyncio.gather(first, *others) == [True] * 4
    assert asked == [0]


class Brief(Env):
    """Has one tool, whose call fails, and which proves slowly that the call was at fault."""

    limits = Limits(max_turns=2, tool_timeout_s=0.1)

    def tasks(self, split: str) -> list[Task]:
        return [Task("t")]

    def tools(self, ctx: Context) -> list[Tool]:
        async def fail() -> str:
            raise ServiceError("gone")

        async def blame() -> str:
            await asyncio.sleep(0.5)
            return "it was you"

        return [Tool({"name": "f", "description": "", "parameters": {}}, fail, blame=blame)]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content="Go.")]


async def test_a_short_tool_timeout_leaves_time_to_find_the_fault() -> None:
    driver = EnvDriver(Brief())
    await driver.reset(Task("t"))
    (message,) = (await driver.step(calls(("f", {})))).messages
    assert message["content"] == "error: it was you"
    await driver.close()


def test_loops_that_have_ended_are_let_go() -> None:
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def good() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))

    async def ask() -> bool:
        return await known_good.works("service", good, 5.0)

    for _ in range(20):
        assert asyncio.run(ask())
    gc.collect()
    assert sum(loop() is not None for loop in loops) <= 1


def test_the_value_of_a_closed_loop_is_returned_once() -> None:
    made = ByLoop(list[int])

    async def here() -> list[int]:
        return made.here()

    async def orphans() -> list[list[int]]:
        assert made.here() is made.here()
        return made.orphans()

    first = asyncio.run(here())
    assert asyncio.run(orphans()) == [first]
    assert len(asyncio.run(orphans())) == 1
