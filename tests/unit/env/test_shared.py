"""Shared resources are made once per process and config, and closed with it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

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


LOCKS = (
    asyncio.Lock, asyncio.Semaphore, asyncio.Condition,
    threading.Lock, threading.RLock, threading.Semaphore, threading.Condition,
)  # fmt: skip


@pytest.mark.parametrize("kind", LOCKS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
async def test_a_lock_is_shared_as_it_is_and_not_held(kind: Any) -> None:
    class Locked(Echo):
        @shared
        def lock(self) -> Any:
            return kind()

    driver = EnvDriver(Locked())
    await driver.reset(Task("t", 3))
    taken = driver.env.lock.acquire()  # type: ignore[attr-defined]
    assert await asyncio.wait_for(taken, 1) if inspect.isawaitable(taken) else taken
    await driver.close()
    await close_shared()


async def test_a_pool_that_acquires_and_releases_is_entered(log: list[str]) -> None:
    class Pool:
        async def __aenter__(self) -> str:
            return "opened"

        async def __aexit__(self, *error: object) -> None:
            LOG.append("close pool")

        async def acquire(self) -> int:
            return 1

        async def release(self, connection: int) -> None: ...

    class Pooled(Echo):
        @shared
        def pool(self) -> Pool:
            return Pool()

    driver = EnvDriver(Pooled())
    await driver.reset(Task("t", 3))
    assert driver.env.pool == "opened"  # type: ignore[attr-defined]
    await driver.close()
    await close_shared()
    assert log == ["close pool"]


@pytest.mark.parametrize("is_managed", [False, True])
async def test_a_resource_used_by_one_defined_before_it_is_explained(is_managed: bool) -> None:
    def second(self: Any) -> Iterator[int]:
        return self.first

    def managed(self: Any) -> Iterator[int]:
        yield self.first

    class Backwards(Echo):
        other = shared(contextlib.contextmanager(managed) if is_managed else second)

        @shared
        def first(self) -> int:
            return 1

    user = "managed" if is_managed else "second"
    with pytest.raises(
        EnvError,
        match=rf"@shared Backwards\.first is made after {user} \(test_shared\.py:\d+\), which uses it: define it bef",
    ):
        await EnvDriver(Backwards()).reset(Task("t", 3))


def test_reading_a_resource_too_early_is_explained() -> None:
    with pytest.raises(
        EnvError, match=r"@shared Library\.books is not available yet: it is made when the first episode begins"
    ):
        Library().books  # noqa: B018
