"""Stopping a run before its last step: on a signal, or when a part fails in the background."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import asynccontextmanager, contextmanager, suppress
from socket import socketpair
from threading import current_thread, main_thread
from typing import Any, TypeVar

from agentrl.errors import AgentRLError, RunError

T = TypeVar("T")

PATIENCE_S = 15.0
FAULT_PATIENCE_S = 300.0  # no scheduler kills a run that failed by itself: its checkpoint is worth some minutes
WAKE_S = 0.5
STOPPING = "\n{}: stopping, this may take a few seconds; press again to skip the checkpoint\n"


class Stopped(Exception):  # noqa: N818 - no error: the user asked for it
    """The run was stopped by a signal, which the message names."""


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, which has deadlines of its own: a cancellation takes effect when it has ended."""
    task, cancelled = asyncio.create_task(work), None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from task.exception()
    return task.result()


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all work, done side by side. The first failure cancels the rest, and is raised after it."""
    async with side_by_side(work) as tasks:
        return await asyncio.gather(*tasks)


@asynccontextmanager
async def side_by_side(work: Iterable[Coroutine[Any, Any, T]]) -> AsyncIterator[list[asyncio.Task[T]]]:
    """Do all work while a block runs. What has not ended with the block is cancelled, and has ended after it."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def as_run_error(error: BaseException) -> AgentRLError:
    """Return an error of agentrl as it is, and any other as a RunError that names its type."""
    return error if isinstance(error, AgentRLError) else RunError(f"{type(error).__name__}: {error}")


class Stop:
    """The end of a run: `cut` interrupts work at once, all other work gets some time to end by itself.

    After a signal that is PATIENCE_S seconds, after a failure FAULT_PATIENCE_S.
    """

    def __init__(self) -> None:
        self._called = asyncio.Event()
        self._reason: BaseException = Stopped("")
        self._main = asyncio.current_task()
        self._deadline = 0.0

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM, and cancel the run on a second one; on exit the earlier handlers are restored."""
        loop = asyncio.get_running_loop()

        def stop(number: signal.Signals) -> None:
            loop.call_soon_threadsafe(self._on_signal, number)

        _stops.append(stop)
        try:
            with _woken(loop), _handlers():
                yield
        finally:
            _stops.remove(stop)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._called.is_set():
            self._cancel()
        self.call(Stopped(number.name))

    def call(self, reason: BaseException) -> None:
        """Stop the run because of `reason`: Stopped, or the error of a part that it needs."""
        if self._called.is_set():
            return
        patience_s = PATIENCE_S if isinstance(reason, Stopped) else FAULT_PATIENCE_S
        self._reason, self._deadline = reason, time.monotonic() + patience_s
        self._called.set()
        asyncio.get_running_loop().call_later(patience_s, self._cancel)

    def if_failed(self, task: asyncio.Task[None]) -> None:
        """Stop the run if a task has ended with an error: a callback for tasks that nobody awaits."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.call(as_run_error(error))

    @property
    def is_called(self) -> bool:
        """Whether the run was asked to end."""
        return self._called.is_set()

    def patience_s(self, default: float) -> float:
        """Return the seconds left to end in; `default` before a stop."""
        return max(0.0, self._deadline - time.monotonic()) if self.is_called else default

    def check(self) -> None:
        """Raise the reason if the run was asked to end."""
        if self._called.is_set():
            raise self._reason

    async def cut(self, work: Awaitable[T]) -> T:
        """Return the result of `work`, or raise the reason as soon as the run is asked to end."""
        task = asyncio.ensure_future(work)
        called = asyncio.create_task(self._called.wait())
        try:
            await asyncio.wait({task, called}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise self._reason
        finally:
            called.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    def reason(self, error: BaseException) -> BaseException:
        """Return why the run ended: the reason of a stop in place of the cancellation that it caused."""
        is_ours = isinstance(error, asyncio.CancelledError) and self._called.is_set()
        return _noted(self._reason, error) if is_ours else error

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()


_stops: list[Callable[[signal.Signals], None]] = []
"""What a signal stops: the runs of this process."""


@contextmanager
def _handlers() -> Iterator[None]:
    """Handlers that stop every run; a no-op outside the main thread, where Python accepts no handlers.

    They answer at once, even while something blocks the event loop, as the start of Ray does for seconds. Without a run
    to stop, the earlier handlers have their effect.
    """
    if current_thread() is not main_thread():
        yield
        return

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def handle(number: int, _: object) -> None:
        if not _stops:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)
            return
        for stop in _stops:
            stop(signal.Signals(number))
        with suppress(OSError):  # nobody reads it any more
            os.write(2, STOPPING.format(signal.Signals(number).name).encode())  # print is not safe in a handler

    for number in numbers:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _woken(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Wake the loop when a signal arrives: a handler runs between two lines of Python only, which a wait can hold off.

    Without it a signal is not answered until the next event if it arrives just before the wait, or on another thread.
    A no-op outside the main thread.
    """
    if current_thread() is not main_thread():
        yield
        return

    ours, theirs = socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        loop.add_reader(ours, ours.recv, 4096)
        before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(ours)


def run_until_stopped(main: Coroutine[Any, Any, T]) -> T:
    """Run `main`, in a thread of its own if this one already runs an event loop, as in a notebook.

    Raises KeyboardInterrupt with the name of the signal that stopped it.
    """
    try:
        if not _has_loop():
            return asyncio.run(main)
        with ThreadPoolExecutor(1, "agentrl") as thread, _handlers():
            run = thread.submit(asyncio.run, main)
            while not run.done():
                wait([run], WAKE_S)  # a handler runs between two waits
            return run.result()
    except Stopped as stopped:
        raise _noted(KeyboardInterrupt(str(stopped)), stopped) from None


def _noted(error: BaseException, other: BaseException) -> BaseException:
    """Return `error` with the notes of `other`."""
    for note in getattr(other, "__notes__", ()):
        error.add_note(note)
    return error


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
