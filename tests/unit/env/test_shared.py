"""Shared resources are made once per process and config, and closed with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from agentrl.env import Context, EnvConfig, EnvDriver, Message, Task, close_shared, shared
from agentrl.errors import EnvError
from tests.unit.env.worlds import Echo

LOG: list[str] = []


class Closable:
    def close(self) -> None:
        LOG.append("close value")


class Library(Echo):
    class Config(EnvConfig):
        size: int = 1

    @shared
    def books(self) -> list[int]:
        LOG.append(f"make books {self.config.size}")
        return list(range(self.config.size))

    @shared
    @contextlib.asynccontextmanager
    async def index(self) -> AsyncIterator[dict[int, int]]:
        LOG.append("open index")
        yield {n: n for n in self.books}
        LOG.append("close index")

    @shared
    @contextlib.contextmanager
    def lock(self) -> Iterator[str]:
        yield "lock"
        LOG.append("close lock")

    @shared
    async def value(self) -> Closable:
        return Closable()

    def tasks(self, split: str) -> list[Task]:
        return [Task(str(n), n) for n in self.books]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [{"role": "user", "content": f"{self.lock} {self.index[0]} {len(self.books)}"}]


@pytest.fixture(autouse=True)
def log() -> list[str]:
    LOG.clear()
    return LOG


async def test_resources_are_made_once_for_all_episodes_and_closed_in_reverse(log: list[str]) -> None:
    envs = [Library() for _ in range(50)]
    starts = await asyncio.gather(*(EnvDriver(env).reset(Task("t")) for env in envs))
    assert {str(s.messages[0]["content"]) for s in starts} == {"lock 0 1"}
    assert envs[0].books is envs[9].books
    assert log == ["make books 1", "open index"]
    await close_shared()
    assert log[2:] == ["close value", "close lock", "close index"]


async def test_each_config_has_its_own(log: list[str]) -> None:
    assert await EnvDriver(Library(size=2)).size("train") == 2
    assert await EnvDriver(Library(size=3)).size("train") == 3
    assert await EnvDriver(Library(size=3)).size("test") == 3
    assert [line for line in log if "books" in line] == ["make books 2", "make books 3"]


async def test_a_failure_reaches_every_waiter_and_the_next_caller_tries_again() -> None:
    class Flaky(Echo):
        tries = 0

        @shared
        async def server(self) -> str:
            Flaky.tries += 1
            if Flaky.tries == 1:
                raise ConnectionError("refused")
            return "up"

    ended = await asyncio.gather(*(EnvDriver(Flaky()).reset(Task("t")) for _ in range(5)), return_exceptions=True)
    assert {str(e).split(" (")[0] for e in ended} == {"Flaky.server raised ConnectionError: refused"}
    env = Flaky()
    await EnvDriver(env).reset(Task("t"))
    assert (env.server, Flaky.tries) == ("up", 2)


async def test_a_cancelled_episode_does_not_cancel_what_others_wait_for() -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    class Slow(Echo):
        @shared
        async def server(self) -> str:
            begun.set()
            await release.wait()
            return "up"

    first, env = asyncio.create_task(EnvDriver(Slow()).reset(Task("t"))), Slow()
    await begun.wait()
    second = asyncio.create_task(EnvDriver(env).reset(Task("t")))
    first.cancel()
    release.set()
    await second
    assert env.server == "up"


async def test_a_resource_that_fails_to_close_does_not_keep_others_open(log: list[str]) -> None:
    class Leaky(Library):
        @shared
        @contextlib.contextmanager
        def pool(self) -> Iterator[int]:
            yield 1
            raise OSError("busy")

    await EnvDriver(Leaky()).reset(Task("t"))
    with pytest.raises(EnvError, match="OSError: busy"):
        await close_shared()
    assert log[2:] == ["close value", "close lock", "close index"]


async def test_a_resource_that_fails_to_open_is_not_closed(log: list[str]) -> None:
    class Refuses:
        async def __aenter__(self) -> None:
            raise ConnectionError("refused")

        async def __aexit__(self, *_: object) -> None:
            log.append("closed")

    class Client(Echo):
        @shared
        def client(self) -> Refuses:
            return Refuses()

    with pytest.raises(EnvError, match="ConnectionError"):
        await EnvDriver(Client()).reset(Task("t"))
    await close_shared()
    assert log == []


async def test_a_value_whose_making_ends_as_everything_closes_is_closed(log: list[str]) -> None:
    made = asyncio.Event()

    class Late(Echo):
        @shared
        async def value(self) -> Closable:
            await asyncio.sleep(0)
            made.set()
            return Closable()

        @shared
        async def never(self) -> None:
            log.append("too late")

    begun = asyncio.create_task(EnvDriver(Late()).reset(Task("t")))
    await made.wait()
    await close_shared()
    assert log == ["close value"]
    with pytest.raises(asyncio.CancelledError):
        await begun


def test_reading_a_resource_too_early_is_explained() -> None:
    with pytest.raises(
        EnvError, match=r"@shared Library\.books is not available yet: it is made when the first episode begins"
    ):
        Library().books  # noqa: B018
