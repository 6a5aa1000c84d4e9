"""Sandbox pools of a worker's tools: one per backend, limits and packages, created when a tool first needs it.

A worker is an event loop, and every loop has its own pools, which end with it. If a loop ends without
`close_sandboxes`, the next loop that needs a sandbox closes its pools.
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

from agentrl.env import within
from agentrl.errors import Caught, ConfigError
from agentrl_tools.loops import ByLoop

if TYPE_CHECKING:
    from agentrl_sandbox import Backend, Limits, Pool

MOST = 1024
MEMORY_EACH = 32 << 20
"""Average bytes per sandbox; the pool holds as many as fit into half of the memory."""
MEMORY_WITH_PACKAGES = 96 << 20
"""The same with packages: importing numpy and sympy takes 63 MiB."""


@dataclass(slots=True)
class LoopPools:
    """Pools of one event loop."""

    pools: dict[tuple[str, Limits, tuple[str, ...]], Pool] = field(default_factory=dict)
    making: asyncio.Lock = field(default_factory=asyncio.Lock)
    holders: int = 0
    closing: set[asyncio.Task[Caught]] = field(default_factory=set)
    """Tasks that close the pools of ended loops."""


_POOLS: ByLoop[LoopPools] = ByLoop(LoopPools)
CLOSE_S = 60.0


@cache
def backend(name: str, packages: tuple[str, ...] = ()) -> Backend:
    """Return the backend of this name with these packages, starting nothing; ConfigError names what is missing."""
    from agentrl_sandbox import PackagesError, UnavailableError, choose

    try:
        return choose(name, packages)
    except PackagesError as error:
        raise ConfigError(str(error)) from error
    except (UnavailableError, ImportError) as error:
        raise ConfigError(f"tools that run code need a sandbox: {error}") from error


async def pool(name: str, limits: Limits, packages: tuple[str, ...] = ()) -> Pool:
    """Return the running loop's pool for these settings; created in a thread, since it first cleans up leftovers."""
    from agentrl_sandbox import Pool

    own = own_pools()
    _close_orphans(own)
    async with own.making:
        key = name, limits, packages
        if key not in own.pools:
            capacity = most(MEMORY_WITH_PACKAGES) if packages else most()
            own.pools[key] = await asyncio.to_thread(Pool, name, limits, most=capacity, packages=packages)
        return own.pools[key]


@asynccontextmanager
async def sandboxes() -> AsyncIterator[None]:
    """Keep the tool sandboxes of the running loop; the last one to leave this context closes them.

    For an environment's `@shared`. Without a holder they end with the process or, if that was killed, when the next
    pool starts.
    """
    own = own_pools()
    own.holders += 1
    try:
        yield
    finally:
        own.holders -= 1
        if not own.holders:
            await close_sandboxes()


async def close_sandboxes() -> None:
    """Close the tool sandboxes of the running loop; the next tool call starts new ones."""
    own = own_pools()
    _close_orphans(own)
    pools, own.pools = own.pools, {}
    for each in pools.values():
        await each.close()
    await asyncio.gather(*own.closing)


def own_pools() -> LoopPools:
    """Return the pools of the running loop."""
    return _POOLS.here()


def _close_orphans(own: LoopPools) -> None:
    """Start closing the pools of closed loops, in the background."""
    for orphan in _POOLS.orphans():
        for each in orphan.pools.values():
            closing = asyncio.ensure_future(within(each.close(), CLOSE_S, "closing a pool of an ended event loop"))
            own.closing.add(closing)
            closing.add_done_callback(own.closing.discard)


def most(memory_each: int = MEMORY_EACH) -> int:
    """Return how many sandboxes fit into memory and file descriptors; an episode keeps its own until it ends."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(2, min(MOST, memory // 2 // memory_each, descriptors // 4))
