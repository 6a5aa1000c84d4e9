"""The sandboxes of a worker's tools: one pool for each backend, limits and packages, made when a tool first needs it.

A worker is an event loop, and each loop has pools of its own: they end with it, whatever the others do. Those of a loop
that ended without `close_sandboxes` are ended by the next loop that needs a sandbox.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from agentrl.env.driver.user_code import within
from agentrl.errors import Caught, ConfigError
from agentrl_tools.loops import ByLoop

if TYPE_CHECKING:
    from agentrl_sandbox import Backend, Limits, Pool

MOST = 1024
MEMORY_EACH = 32 << 20
"""Bytes that a sandbox may take on average; as many are held as half of the memory has room for."""
MEMORY_WITH_PACKAGES = 96 << 20
"""The same where there are packages: to import numpy and sympy takes 63 MiB."""


@dataclass(slots=True)
class Held:
    """What one event loop has."""

    pools: dict[tuple[str, Limits, tuple[str, ...]], Pool] = field(default_factory=dict)
    making: asyncio.Lock = field(default_factory=asyncio.Lock)
    holders: int = 0
    endings: set[asyncio.Task[Caught]] = field(default_factory=set)
    """Of pools that loops have left behind."""


_HELD: ByLoop[Held] = ByLoop(Held)
CLOSE_S = 60.0


@cache
def backend(name: str, packages: tuple[str, ...] = ()) -> Backend:
    """The backend of this name with these packages; ConfigError says what is missing. Starts no sandbox."""
    from agentrl_sandbox import PackagesError, UnavailableError, choose

    try:
        return choose(name, packages)
    except PackagesError as error:
        raise ConfigError(str(error)) from error
    except (UnavailableError, ImportError) as error:
        raise ConfigError(f"tools that run code need a sandbox: {error}") from error


async def pool(name: str, limits: Limits, packages: tuple[str, ...] = ()) -> Pool:
    """The running loop's pool for these, made in a thread: it first removes what the dead have left."""
    from agentrl_sandbox import Pool

    mine = held()
    _end_orphans(mine)
    async with mine.making:
        key = name, limits, packages
        if key not in mine.pools:
            room = most(MEMORY_WITH_PACKAGES) if packages else most()
            mine.pools[key] = await asyncio.to_thread(Pool, name, limits, most=room, packages=packages)
        return mine.pools[key]


@asynccontextmanager
async def sandboxes() -> AsyncIterator[None]:
    """Hold on to the tools' sandboxes of the running loop: who leaves this last ends them all.

    For an environment's `@shared`. Where nobody holds them they end with the process, or with the next pool's start
    when the process was killed.
    """
    mine = held()
    mine.holders += 1
    try:
        yield
    finally:
        mine.holders -= 1
        if not mine.holders:
            await close_sandboxes()


async def close_sandboxes() -> None:
    """End the tools' sandboxes of the running loop now; the next call of a tool begins anew."""
    mine = held()
    _end_orphans(mine)
    pools, mine.pools = mine.pools, {}
    for each in pools.values():
        await each.close()
    await asyncio.gather(*mine.endings)


def held() -> Held:
    """What the running loop has."""
    return _HELD.here()


def _end_orphans(mine: Held) -> None:
    """Begin to end the sandboxes of loops that are closed; nobody waits for it."""
    for left in _HELD.orphans():
        for each in left.pools.values():
            ending = asyncio.ensure_future(within(each.close(), CLOSE_S, "the end of a pool that its loop has left"))
            mine.endings.add(ending)
            ending.add_done_callback(mine.endings.discard)


def most(memory_each: int = MEMORY_EACH) -> int:
    """As many as memory and file descriptors have room for: an episode keeps its sandbox until it ends."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(2, min(MOST, memory // 2 // memory_each, descriptors // 4))
