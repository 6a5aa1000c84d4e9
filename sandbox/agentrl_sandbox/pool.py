"""Sandboxes that are started before they are needed, each for one lease, each destroyed after it."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from agentrl_sandbox import gc, leases
from agentrl_sandbox.choice import choose
from agentrl_sandbox.errors import ClosedError, FullError, SandboxError
from agentrl_sandbox.types import Backend, Limits, Sandbox

WAIT_S = 60.0
CLOSE_S = 30.0
log = logging.getLogger("agentrl.sandbox")


@dataclass(frozen=True, slots=True)
class Count:
    """What a pool has done, and what it holds now."""

    leased: int = 0
    ready: int = 0
    starting: int = 0
    closing: int = 0
    waiting: int = 0
    served: int = 0
    unhealthy: int = 0  # found dead before they were given out
    failed: int = 0  # could not be started
    waited_s: float = 0.0  # in the queue, all leases together


class Pool:
    """Up to `most` sandboxes, of which `ready` wait for a lease. Usable from several event loops of one process."""

    def __init__(
        self,
        backend: Backend | str = "auto",
        limits: Limits | None = None,
        ready: int = 0,
        most: int = 256,
    ) -> None:
        self.backend = choose(backend) if isinstance(backend, str) else backend
        self.limits = limits or Limits()
        cores = len(os.sched_getaffinity(0))
        self._ready, self._most, self._starts = min(ready or 2 * cores, most), most, max(2, cores)
        self._lock, self._pid, self._is_closed = threading.RLock(), os.getpid(), False
        self._idle: deque[Sandbox] = deque()
        self._leased: dict[str, Sandbox] = {}
        self._waiters: deque[asyncio.Future[Sandbox]] = deque()
        self._starting: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._count = Count()
        for line in gc.collect():
            log.info("%s", line)
        log.info("sandboxes by %s: %s", self.backend.name, self.backend.describe())
        _pools.add(self)

    async def __aenter__(self) -> Pool:
        self._refill()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def count(self) -> Count:
        """What it has done and holds."""
        with self._lock:
            return replace(
                self._count,
                leased=len(self._leased),
                ready=len(self._idle),
                starting=len(self._starting),
                closing=len(self._closing),
                waiting=len(self._waiters),
            )

    @asynccontextmanager
    async def lease(self, wait_s: float = WAIT_S) -> AsyncIterator[Sandbox]:
        """A sandbox that has run nothing yet, destroyed at the end of the block; FullError after `wait_s`."""
        sandbox = await self.take(wait_s)
        try:
            yield sandbox
        finally:
            self.drop(sandbox)

    async def take(self, wait_s: float = WAIT_S) -> Sandbox:
        """A sandbox that has run nothing yet, to be given to `drop`; FullError after `wait_s` in the queue."""
        with self._lock:
            self._check()
            sandbox = self._next_healthy() if not self._waiters else None
            waiter = None if sandbox else asyncio.get_running_loop().create_future()
            if waiter:
                self._waiters.append(waiter)
            elif sandbox:
                self._give(sandbox)
        self._refill()
        return sandbox or await self._wait(waiter, wait_s)  # type: ignore[arg-type]

    def drop(self, sandbox: Sandbox) -> None:
        """End a lease: everything in the sandbox is killed now, what remains of it is removed in the background."""
        with self._lock:
            if self._leased.pop(sandbox.id, None) is None:
                return
        sandbox.kill()
        self._in_background(self._closing, sandbox.close())

    async def close(self) -> None:
        """End every sandbox, leased or not, and wait until nothing is left of them; safe to call twice."""
        with self._lock:
            self._is_closed = True
            held = [*self._idle, *self._leased.values()]
            self._idle.clear()
            self._leased.clear()
            waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            _settle(waiter, ClosedError("the sandbox pool was closed"))
        for sandbox in held:
            sandbox.kill()
        for task in self._own(self._starting):
            task.cancel()
        closing = [*self._own(self._closing), *self._own(self._starting), *(sandbox.close() for sandbox in held)]
        async with asyncio.timeout(CLOSE_S):
            results = await asyncio.gather(*closing, return_exceptions=True)
        await self.backend.close()
        for error in results:
            if isinstance(error, SandboxError):
                raise error

    # --- inside -----------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise ClosedError("a sandbox pool does not work in a forked process: make one there")
        if self._is_closed:
            raise ClosedError("the sandbox pool was closed")

    def _next_healthy(self) -> Sandbox | None:
        """The next idle sandbox; those that have died are dropped on the way."""
        while self._idle:
            sandbox = self._idle.popleft()
            if sandbox.is_healthy():
                return sandbox
            self._count = replace(self._count, unhealthy=self._count.unhealthy + 1)
            self._in_background(self._closing, sandbox.close())
        return None

    def _give(self, sandbox: Sandbox) -> None:
        self._leased[sandbox.id] = sandbox
        self._count = replace(self._count, served=self._count.served + 1)

    async def _wait(self, waiter: asyncio.Future[Sandbox], wait_s: float) -> Sandbox:
        began = time.monotonic()
        try:
            async with asyncio.timeout(wait_s):
                return await waiter
        except TimeoutError:
            raise FullError(f"no sandbox was free within {wait_s} s: {self.count}") from None
        finally:
            with self._lock:
                self._count = replace(self._count, waited_s=self._count.waited_s + time.monotonic() - began)
                with suppress(ValueError):
                    self._waiters.remove(waiter)
            if waiter.done() and not waiter.cancelled() and not waiter.exception() and not _is_received(waiter):
                self.drop(waiter.result())

    def _refill(self) -> None:
        """Start as many sandboxes as are wanted, may be held, and can be started at once."""
        with self._lock:
            for tasks in (self._starting, self._closing):
                tasks -= {task for task in tasks if task.get_loop().is_closed()}
            while not self._is_closed and self._is_wanting():
                self._in_background(self._starting, self._start())

    def _is_wanting(self) -> bool:
        held = len(self._idle) + len(self._leased) + len(self._starting) + len(self._closing)
        wanted = self._ready + len(self._waiters) - len(self._idle) - len(self._starting)
        return wanted > 0 and held < self._most and len(self._starting) < self._starts

    async def _start(self) -> None:
        """One sandbox, for who has waited longest or for later; a failure goes to who has waited longest."""
        try:
            sandbox = await self.backend.create(self.limits)
        except SandboxError as error:
            self._fail(error)
            return
        with self._lock:
            if self._is_closed:
                sandbox.kill()
                self._in_background(self._closing, sandbox.close())
                return
            waiter = self._next_waiter()
            if waiter is None:
                self._idle.append(sandbox)
                return
            self._give(sandbox)
            _settle(waiter, sandbox)
