"""Pool of sandboxes that are started in advance; each serves one lease and is destroyed after it."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from agentrl_sandbox import gc, leases
from agentrl_sandbox.choice import choose
from agentrl_sandbox.errors import ClosedError, FullError, SandboxError
from agentrl_sandbox.types import Backend, Limits, Sandbox

WAIT_S = 60.0
CLOSE_S = 30.0
MAX_SANDBOXES = 256
Tasks = set[asyncio.Task[None]]
_makers: set[int] = set()  # pids of processes that made a pool: this one or its parent before a fork
log = logging.getLogger("agentrl.sandbox")


@dataclass(frozen=True, slots=True)
class Count:
    """Statistics of a pool: what it has done and what it holds now."""

    leased: int = 0
    ready: int = 0
    starting: int = 0
    closing: int = 0
    waiting: int = 0
    served: int = 0
    unhealthy: int = 0  # found dead before they were leased
    failed: int = 0  # could not be started or removed
    waited_s: float = 0.0  # time in the queue, summed over all leases


class Waiter:
    """A queued request for a sandbox, on its own event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.woken: asyncio.Future[None] = self.loop.create_future()
        self.sandbox: Sandbox | None = None
        self.error: SandboxError | None = None

    def wake(self, sandbox: Sandbox | None = None, error: SandboxError | None = None) -> bool:
        """Deliver a sandbox or an error; return False if its event loop is gone."""
        self.sandbox, self.error = sandbox, error
        return self.call(self._stir)

    def call(self, action: Callable[[], None]) -> bool:
        """Call `action` on its event loop; return False if that is gone."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(action)
            return True
        return False

    def _stir(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class Pool:
    """Up to `most` sandboxes, of which `ready` are kept idle. Usable from several event loops of one process."""

    def __init__(
        self,
        backend: Backend | str = "auto",
        limits: Limits | None = None,
        ready: int = 0,
        most: int = MAX_SANDBOXES,
        packages: Sequence[str] = (),
    ) -> None:
        """Create a pool; `packages` as in `choose`, only together with the name of a backend."""
        if packages and not isinstance(backend, str):
            raise ValueError("packages need the name of a backend; pass them to choose() when you make one yourself")
        self.backend = choose(backend, packages) if isinstance(backend, str) else backend
        self.limits = limits or Limits()
        cores = len(os.sched_getaffinity(0))
        self._ready, self._most, self._starts = min(ready or 2 * cores, most), most, 2 * cores
        self._lock, self._pid, self._is_closed = threading.RLock(), os.getpid(), False
        self._idle: deque[Sandbox] = deque()
        self._leased: dict[str, Sandbox] = {}
        self._waiters: deque[Waiter] = deque()
        self._starting: Tasks = set()
        self._closing: Tasks = set()
        self._undone: list[Sandbox] = []  # their removal was cut off with its event loop
        self._count = Count()
        for line in gc.collect():
            log.warning("%s", line)
        log.info("sandboxes by %s: %s", self.backend.name, self.backend.describe())
        _makers.add(self._pid)

    async def __aenter__(self) -> Pool:
        self._refill()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def count(self) -> Count:
        """Current statistics."""
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
        """Lease a fresh sandbox, which is destroyed at the end of the block; FullError after `wait_s`."""
        sandbox = await self.take(wait_s)
        try:
            yield sandbox
        finally:
            self.drop(sandbox)

    async def take(self, wait_s: float = WAIT_S) -> Sandbox:
        """Lease a fresh sandbox until it is passed to `drop`; FullError after `wait_s` in the queue."""
        with self._lock:
            self._check()
            if sandbox := None if self._waiters else self._next_healthy():
                self._lend(sandbox)
                self._refill()
                return sandbox
            waiter = Waiter()
            self._waiters.append(waiter)
            self._refill()
        return await self._wait(waiter, wait_s)

    def drop(self, sandbox: Sandbox) -> None:
        """End a lease: kill everything in the sandbox now and remove the sandbox in the background."""
        with self._lock:
            if self._leased.pop(sandbox.id, None):
                self._discard(sandbox)

    async def close(self) -> None:
        """Close every sandbox, leased or not, and wait until nothing is left of them; idempotent."""
        with self._lock:
            self._is_closed = True
            for waiter in self._waiters:
                waiter.wake(error=ClosedError("the sandbox pool is closed"))
            for sandbox in [*self._idle, *self._leased.values()]:
                self._discard(sandbox)
            self._resume()
            self._waiters.clear()
            self._idle.clear()
            self._leased.clear()
        until = time.monotonic() + CLOSE_S
        while tasks := self._unfinished():
            await asyncio.wait(tasks, timeout=max(0.0, until - time.monotonic()))
            if time.monotonic() > until:
                raise SandboxError(f"{len(tasks)} sandboxes did not close within {CLOSE_S} s: run `agentrl gc`")
        await self.backend.close()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise ClosedError("a sandbox pool does not work in a forked process: create one there")
        if self._is_closed:
            raise ClosedError("the sandbox pool is closed")

    def _next_healthy(self) -> Sandbox | None:
        """Return the next idle sandbox, discarding those that have died."""
        while self._idle:
            sandbox = self._idle.popleft()
            if sandbox.is_healthy():
                return sandbox
            self._count = replace(self._count, unhealthy=self._count.unhealthy + 1)
            self._discard(sandbox)
        return None

    def _lend(self, sandbox: Sandbox) -> None:
        self._leased[sandbox.id] = sandbox
        self._count = replace(self._count, served=self._count.served + 1)

    async def _wait(self, waiter: Waiter, wait_s: float) -> Sandbox:
        began = time.monotonic()
        try:
            async with asyncio.timeout(wait_s):  # wait_for of Python 3.11 can swallow a cancellation
                await waiter.woken
        except TimeoutError:
            pass  # a sandbox may have been delivered at the last moment
        except asyncio.CancelledError:
            with self._lock:
                self._leave(waiter, began)
                if waiter.sandbox:
                    self.drop(waiter.sandbox)
            raise
        with self._lock:
            self._leave(waiter, began)
        if waiter.error:
            raise waiter.error
        if waiter.sandbox:
            return waiter.sandbox
        raise FullError(f"no sandbox was free within {wait_s} s: {self.count}")

    def _leave(self, waiter: Waiter, began: float) -> None:
        """Remove a waiter from the queue."""
        self._count = replace(self._count, waited_s=self._count.waited_s + time.monotonic() - began)
        with suppress(ValueError):
            self._waiters.remove(waiter)

    def _refill(self) -> None:
        """Start as many sandboxes as are needed, within the limits on sandboxes and on concurrent starts."""
        with self._lock:
            for tasks in (self._starting, self._closing):
                tasks.difference_update({task for task in tasks if task.get_loop().is_closed()})
            self._resume()
            while not self._is_closed and self._needs_more():
                self._in_background(self._starting, self._start())

    def _resume(self) -> None:
        """Repeat the removals that were cut off with their event loop."""
        undone, self._undone = self._undone, []
        for sandbox in undone:
            self._discard(sandbox)

    def _needs_more(self) -> bool:
        existing = len(self._idle) + len(self._leased) + len(self._starting) + len(self._closing)
        missing = self._ready + len(self._waiters) - len(self._idle) - len(self._starting)
        return missing > 0 and existing < self._most and len(self._starting) < self._starts

    async def _start(self) -> None:
        """Start a sandbox for the longest waiter, or as an idle one; a failure goes to the longest waiter.

        A full server is not a failure: waiters keep waiting until other clients release sandboxes there.
        """
        try:
            sandbox = await self.backend.create(self.limits)
        except SandboxError as error:
            log.warning("a sandbox could not be started: %s", error)
            with self._lock:
                if isinstance(error, FullError) and self._waiters:
                    return
                self._count = replace(self._count, failed=self._count.failed + 1)
                if self._waiters:
                    self._waiters.popleft().wake(error=error)
            return
        with self._lock:
            if self._is_closed:
                self._discard(sandbox)
            else:
                self._deliver(sandbox)

    def _deliver(self, sandbox: Sandbox) -> None:
        while self._waiters:
            if self._waiters.popleft().wake(sandbox):
                self._lend(sandbox)
                return
        self._idle.append(sandbox)

    def _discard(self, sandbox: Sandbox) -> None:
        sandbox.kill()
        self._in_background(self._closing, self._remove(sandbox), sandbox)

    async def _remove(self, sandbox: Sandbox) -> None:
        """Remove what is left of a sandbox; if that fails, its lease stays recorded for `agentrl gc`."""
        try:
            await sandbox.close()
        except SandboxError as error:
            log.warning("%s", error)
            with self._lock:
                self._count = replace(self._count, failed=self._count.failed + 1)

    def _in_background(self, tasks: Tasks, work: Coroutine[Any, Any, None], removed: Sandbox | None = None) -> None:
        """Run `work` as a task of the running loop; `tasks` keeps it until it is done."""
        failed = self._count.failed
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            with self._lock:
                tasks.discard(task)
                if not task.cancelled():
                    if self._count.failed == failed or self._waiters:
                        self._refill()
                    return
                # Its event loop ends: start nothing more there; a waiter on another loop takes over the refill.
                if removed:
                    self._undone.append(removed)
                any(waiter.call(self._refill) for waiter in self._waiters if waiter.loop is not task.get_loop())

        task.add_done_callback(done)

    def _unfinished(self) -> Tasks:
        """Return the unfinished tasks of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            return {task for task in (*self._starting, *self._closing) if task.get_loop() is loop}


@atexit.register
def _at_exit() -> None:
    """Remove the sandboxes of a process that did not close its pools."""
    if os.getpid() in _makers:
        gc.collect(leases.me())
