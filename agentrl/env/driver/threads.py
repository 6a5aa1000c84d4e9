"""Blocking calls of environments, each on a thread that can be abandoned if it hangs."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any

from agentrl.errors import DeadlineError, EnvError

MAX_NAMED = 2
"""Hanging methods that an error names."""


class CallState(Enum):
    """State of a call."""

    QUEUED = 0
    RUNNING = 1
    ABANDONED = 2
    ENDED = 3


class Call:
    """One blocking call, and the future that its caller awaits."""

    def __init__(self, function: Callable[[], Any], what: str, loop: asyncio.AbstractEventLoop) -> None:
        self.function = function
        self.what = what
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.state = CallState.QUEUED
        self.started_at = 0.0

    def publish(self, result: Any) -> None:
        """Hand `result` to the caller; runs on the caller's loop."""
        if not self.future.done():
            self.future.set_result(result)


class Threads:
    """At most `size` daemon threads. The thread of a call past its deadline is abandoned and replaced.

    A thread cannot be killed: abandoned ones are counted, and from `max_lost` on no further call is accepted.
    """

    def __init__(self, size: int = 32, max_lost: int = 256, name: str = "agentrl-env") -> None:
        self.size = size
        self.name = name
        self.max_lost = max_lost
        self.forget()
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Start without threads; a forked child has none of its parent's."""
        self.lost = 0
        self._hanging: Counter[str] = Counter()
        self._alive = 0
        self._idle = 0
        self._queue: deque[Call] = deque()
        self._ready = threading.Condition()

    async def run(self, function: Callable[[], Any], timeout_s: float, what: str) -> Any:
        """Return the result of `function()`, which must not raise. The deadline counts from the start of the call."""
        call = Call(function, what, asyncio.get_running_loop())
        self._submit(call)
        try:
            return await self._outcome(call, timeout_s, what)
        finally:
            self._abandon(call)

    async def _outcome(self, call: Call, timeout_s: float, what: str) -> Any:
        wait_s = timeout_s
        while True:
            await asyncio.wait({call.future}, timeout=wait_s)
            if call.future.done():
                return call.future.result()
            running = call.state is not CallState.QUEUED
            wait_s = call.started_at + timeout_s - time.monotonic() if running else timeout_s
            if wait_s <= 0:
                raise DeadlineError(f"{what} ran longer than {timeout_s:g} s")

    def _submit(self, call: Call) -> None:
        with self._ready:
            if self.lost >= self.max_lost:
                hanging = ", ".join(name for name, _ in (+self._hanging).most_common(MAX_NAMED))
                raise EnvError(
                    f"{call.what}: {self.lost} earlier calls hang in threads ({hanging}); add timeouts to that code"
                )
            self._queue.append(call)
            try:
                self._serve()
            except RuntimeError:
                self._queue.remove(call)
                raise

    def _serve(self) -> None:
        if self._idle >= len(self._queue):
            self._ready.notify()
        elif self._alive < self.size:
            self._start()

    def _start(self) -> None:
        try:
            threading.Thread(target=self._work, name=self.name, daemon=True).start()
        except RuntimeError:  # the machine has no more threads: the call waits for one of ours
            if not self._alive:
                raise
        else:
            self._alive += 1

    def _abandon(self, call: Call) -> None:
        with self._ready:
            state = call.state
            if state is not CallState.ENDED:
                call.state = CallState.ABANDONED
            if state is CallState.QUEUED:
                self._queue.remove(call)
            elif state is CallState.RUNNING:
                self._alive -= 1
                self.lost += 1
                self._hanging[call.what] += 1
                if self._queue:
                    with suppress(RuntimeError):  # without another thread the calls wait for one of ours
                        self._serve()

    def _take(self) -> Call:
        with self._ready:
            while not self._queue:
                self._idle += 1
                self._ready.wait()
                self._idle -= 1
            call = self._queue.popleft()
            call.state = CallState.RUNNING
            call.started_at = time.monotonic()
            return call

    def _work(self) -> None:
        while True:
            call = self._take()
            result = call.function()
            with self._ready:
                if call.state is CallState.ABANDONED:
                    self.lost -= 1
                    self._hanging[call.what] -= 1
                    return
                call.state = CallState.ENDED
            if not call.loop.is_closed():
                call.loop.call_soon_threadsafe(call.publish, result)


THREADS = Threads()
PLAYS = Threads(size=1024, max_lost=1024, name="agentrl-play")
"""Threads of agents, which wait for the policy and the rewards of its turns: with those of THREADS, they could hold all
that their own rewards need."""
STAND_INS = Threads(name="agentrl-role")
"""Threads of stand-ins, for which plain code of the environment may wait likewise."""
