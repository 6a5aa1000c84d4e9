"""Threads for blocking calls that work until the process ends."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Workers(ThreadPoolExecutor):
    """Executor for an event loop that is closed at exit. The library's executor rejects calls during `atexit`."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._calls = SimpleQueue[Callable[[], None] | None]()
        self._workers = [threading.Thread(target=self._work, name="agentrl-code-worker", daemon=True)
                         for _ in range(count)]  # fmt: skip
        for worker in self._workers:
            worker.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn(*args, **kwargs)` in one of the threads; return its future."""
        future: Future[T] = Future()

        def call() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001  (raised again by the future)
                    future.set_exception(error)

        self._calls.put(call)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads after the submitted calls."""
        for _ in self._workers:
            self._calls.put(None)
        for worker in self._workers if wait else ():
            worker.join()
        super().shutdown(wait, cancel_futures=cancel_futures)

    def _work(self) -> None:
        while call := self._calls.get():
            call()
