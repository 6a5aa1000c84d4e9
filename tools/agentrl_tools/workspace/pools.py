"""The sandboxes of this process's tools: one pool for each backend and limits, made when a tool first needs it."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING

from agentrl.errors import ConfigError

if TYPE_CHECKING:
    from agentrl_sandbox import Backend, Limits, Pool

MOST = 1024
MEMORY_EACH = 32 << 20
"""Bytes that a sandbox takes while it waits for a call; as many are held as half of the memory has room for."""

_lock = threading.Lock()
_pools: dict[tuple[int, str, Limits], Pool] = {}
_holders = 0


@cache
def backend(name: str) -> Backend:
    """The sandbox backend of this name; ConfigError says what is missing and what to do. Starts no sandbox."""
    from agentrl_sandbox import UnavailableError, choose

    try:
        return choose(name)
    except (UnavailableError, ImportError) as error:
        raise ConfigError(f"tools that run code need a sandbox: {error}") from error


async def pool(name: str, limits: Limits) -> Pool:
    """The pool of this process for a backend and limits, whatever thread and event loop asks."""
    key = (os.getpid(), name, limits)
    if key in _pools:
        return _pools[key]
    return await asyncio.to_thread(_made, key)


@asynccontextmanager
async def sandboxes() -> AsyncIterator[None]:
    """Hold on to the tools' sandboxes of this process: who leaves this last ends them all.

    For an environment's `@shared`. Where nobody holds them they end with the process, or with the next pool's start
    when the process was killed.
    """
    global _holders
    with _lock:
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            is_last = not _holders
        if is_last:
            await close_sandboxes()


async def close_sandboxes() -> None:
    """End the tools' sandboxes of this process now; the next call of a tool begins anew."""
    with _lock:
        mine = [_pools.pop(key) for key in list(_pools) if key[0] == os.getpid()]
        backend.cache_clear()
    for each in mine:
        await each.close()


def _made(key: tuple[int, str, Limits]) -> Pool:
    """Runs in a thread: a pool begins by removing what killed processes have left behind."""
    from agentrl_sandbox import Pool

    with _lock:
        if key not in _pools:
            _pools[key] = Pool(backend(key[1]), key[2], most=_most())
        return _pools[key]


def _most() -> int:
    """As many as memory and file descriptors have room for: an episode keeps its sandbox until it ends."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(2, min(MOST, memory // 2 // MEMORY_EACH, descriptors // 4))


def _after_fork() -> None:
    global _lock, _holders
    _lock, _holders = threading.Lock(), 0


os.register_at_fork(after_in_child=_after_fork)
