"""The end of a run before its last step: a signal, or a part that failed in the background."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE_S = 15.0
STOPPING = "\n{}: stopping, which may take some seconds; a second one waits for no checkpoint\n"


class Stopped(Exception):  # noqa: N818 - no error: somebody asked for it
    """The run was asked to stop; says by what."""


class Stop:
    """Work that may be cut short goes through `cut`; all else gets PATIENCE_S seconds to end by itself."""

    def __init__(self) -> None:
        self._called = asyncio.Event()
        self._reason: BaseException = Stopped("")
        self._main = asyncio.current_task()
        self._called_at = 0.0

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask for a stop; a second one does not wait. Restores the previous handlers on exit.

        Python accepts handlers in the main thread only; elsewhere `run_until_stopped` passes an interrupt on.

        The stop is told at once, even while something holds the loop, as the start of Ray does for seconds.
        """
        loop = asyncio.get_running_loop()
        if current_thread() is not main_thread():
            _in_threads.append((loop, self))
            try:
                yield
            finally:
                _in_threads.remove((loop, self))
            return

        def hear(number: int, _: object) -> None:
            os.write(2, STOPPING.format(signal.Signals(number).name).encode())  # as safe as a handler must be
            loop.call_soon_threadsafe(self._on_signal, signal.Signals(number))

        before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._called.is_set():
            self._cancel()
        self.call(Stopped(number.name))

    def call(self, reason: BaseException) -> None:
        """End the run: Stopped, or the error of a part without which it cannot go on."""
        if self._called.is_set():
            return
        self._reason, self._called_at = reason, time.monotonic()
        self._called.set()
        asyncio.get_running_loop().call_later(PATIENCE_S, self._cancel)

    @property
    def is_called(self) -> bool:
        """True when the run is to end."""
        return self._called.is_set()

    def patience_s(self, default: float) -> float:
        """Seconds that ending may still take: `default` while nobody asked for a stop."""
        return max(0.0, self._called_at + PATIENCE_S - time.monotonic()) if self.is_called else default

    def check(self) -> None:
        """Raise the reason when the run is to end."""
        if self._called.is_set():
            raise self._reason

    async def cut(self, work: Awaitable[T]) -> T:
        """The result of `work`, or the reason as soon as the run is to end."""
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
        """Why the run ended: a cancellation that this object caused stands for its reason."""
        return self._reason if isinstance(error, asyncio.CancelledError) and self._called.is_set() else error

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()


_in_threads: list[tuple[asyncio.AbstractEventLoop, Stop]] = []
"""What runs outside the main thread, which alone hears of signals."""


def run_until_stopped(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end; in a thread of its own if this one already runs an event loop, as in a notebook.

    Raises KeyboardInterrupt with the name of the signal that stopped it.
    """
    try:
        return _in_thread(main) if _has_loop() else asyncio.run(main)
    except Stopped as stopped:
        raise KeyboardInterrupt(str(stopped)) from None


def _in_thread(main: Coroutine[Any, Any, T]) -> T:
    with ThreadPoolExecutor(1, "agentrl") as thread:
        result = thread.submit(asyncio.run, main)
        while True:
            try:
                return result.result()
            except KeyboardInterrupt:
                if result.done():
                    raise
                print(STOPPING.format("SIGINT"), end="", file=sys.stderr)
                for loop, stop in _in_threads:
                    loop.call_soon_threadsafe(stop._on_signal, signal.SIGINT)


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
