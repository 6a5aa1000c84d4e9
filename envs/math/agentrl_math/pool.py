"""Killable worker processes behind a call that is safe from any thread, event loop and forked process."""

import atexit
import contextlib
import json
import os
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agentrl_math.limits import COMPUTE_S, PATIENCE, QUEUE_S
from agentrl_math.nursery import Nursery, Worker

ARITHMETIC = "agentrl_math.numeric"
MATH_VERIFY = "agentrl_math.second"


class PoolError(RuntimeError):
    """The pool could not compute a reply, through no known fault of the answer."""

    fault = "infra"
    is_deserved = False
    """Whether the computation itself is to blame rather than the machine."""


class OverrunError(PoolError):
    """The comparison was killed at its deadline."""


class WorkerDiedError(PoolError):
    """The worker died while computing."""


class Pool:
    """Up to `size` workers, started on demand. A worker that exceeds its time is killed and replaced; it gets more time
    if the machine starves it of processor time.

    `ask` waits at most `queue_s` for a worker and then at most `share` of `compute_s` for its reply; the shares of one
    call add up to 1. There are two kinds of workers: a full one has imported math-verify, which takes a cradle seconds,
    and can serve every request; a plain one cannot.
    """

    def __init__(self, size: int | None = None, compute_s: float = COMPUTE_S, queue_s: float = QUEUE_S) -> None:
        self.size = size or max(2, min(8, (os.cpu_count() or 2) // 4))
        self.compute_s, self.queue_s = compute_s, queue_s
        self._plain, self._full = Nursery(ARITHMETIC), Nursery(ARITHMETIC, MATH_VERIFY)
        self._closed = False
        self._forget()
        _pools.add(self)

    def _forget(self) -> None:
        self._idle: list[Worker] = []
        self._busy: dict[int, Worker] = {}
        self._free = threading.BoundedSemaphore(self.size)
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    @property
    def is_closed(self) -> bool:
        """Whether the pool is closed."""
        return self._closed

    @property
    def worker_pids(self) -> list[int]:
        """The process ids of the workers."""
        return [*(worker.pid for worker in self._idle), *self._busy]

    @property
    def pids(self) -> list[int]:
        """The process ids of cradles and workers."""
        return [*(pid for pid in (self._plain.pid, self._full.pid) if pid), *self.worker_pids]

    @property
    def threads(self) -> ThreadPoolExecutor:
        """Threads that wait for workers on behalf of event loops."""
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.size, thread_name_prefix="agentrl-math")
            return self._threads

    def ask(self, request: dict[str, Any], waited_s: float = 0.0, share: float = 1.0) -> dict[str, Any]:
        """Return a worker's reply to a request; `waited_s` counts as time in the queue. PoolError if there is none."""
        if not self._free.acquire(timeout=max(0.0, self.queue_s - waited_s)):
            raise PoolError(f"no verifier was free within {self.queue_s} s")
        try:
            return self._ask(request, bool(request.get("full")), share * self.compute_s)
        finally:
            self._free.release()

    def close(self) -> None:
        """End every process of the pool; idempotent."""
        self._closed = True
        with self._starting, self._lock:
            for worker in self._idle:
                worker.channel.close()
            self._idle.clear()
            threads, self._threads = self._threads, None
            self._plain.close()
            self._full.close()
        if threads:
            threads.shutdown(wait=False)

    def _ask(self, request: dict[str, Any], full: bool, within_s: float) -> dict[str, Any]:
        worker = self._idle_worker(full) or self._fresh_worker(full)
        started = time.monotonic()
        try:
            return self._exchange(worker, request, within_s)
        except WorkerDiedError:
            left_s = within_s - (time.monotonic() - started)
            if not worker.served or left_s <= 0:
                raise
        return self._exchange(self._fresh_worker(full), request, left_s)  # the first may have died while idle

    def _exchange(self, worker: Worker, request: dict[str, Any], within_s: float) -> dict[str, Any]:
        """Send a request and return the reply; keep the worker, or end it if it failed."""
        kept = False
        try:
            reply = self._reply(worker, json.dumps(request).encode(), within_s)
            kept = True
            return reply
        except OSError as problem:
            died = WorkerDiedError(f"the verifier process ended: {problem}")
            died.is_deserved = worker.ended_itself
            raise died from None
        finally:
            self._put(worker, kept)

    def _reply(self, worker: Worker, request: bytes, within_s: float) -> dict[str, Any]:
        worker.channel.settimeout(within_s)
        before = worker.cpu_s
        worker.channel.send(request)
        message = self._message(worker, before, within_s)
        if not message:
            raise ConnectionResetError("killed, or out of memory")
        worker.served += 1
        reply: dict[str, Any] = json.loads(message)
        return reply

    def _message(self, worker: Worker, before: float, within_s: float) -> bytes:
        """Return a worker's message; OverrunError after `within_s`, or PATIENCE times that if it was starved."""
        for _ in range(PATIENCE):
            with contextlib.suppress(TimeoutError):
                return worker.channel.recv(1 << 18)
            if is_deserved := worker.cpu_s - before >= within_s / 2:
                break
        overrun = OverrunError(f"not decided within {within_s:g} s")
        overrun.is_deserved = is_deserved
        raise overrun

    def _idle_worker(self, full: bool) -> Worker | None:
        """Take an idle worker of the needed kind, or None; if necessary end an idle plain one to make room."""
        with self._lock:
            fit = next((worker for worker in reversed(self._idle) if not full or worker.nursery is self._full), None)
            if fit:
                self._idle.remove(fit)
                self._busy[fit.pid] = fit
            elif len(self._idle) + len(self._busy) >= self.size and self._idle:
                surplus = self._idle.pop(0)
                surplus.nursery.end(surplus)
            return fit

    def _fresh_worker(self, full: bool) -> Worker:
        with self._starting:
            if self._closed:
                raise PoolError("the verifier pool is closed")
            try:
                worker = (self._full if full else self._plain).spawn()
            except OSError as problem:
                raise PoolError(f"cannot start a verifier process: {problem}") from None
            with self._lock:
                self._busy[worker.pid] = worker
            return worker

    def _put(self, worker: Worker, kept: bool) -> None:
        with self._lock:
            self._busy.pop(worker.pid, None)
            if kept and not self._closed:
                self._idle.append(worker)
            else:
                worker.nursery.end(worker)

    def _abandon(self) -> None:
        """In a forked child, forget the parent's processes without ending them."""
        for worker in [*self._idle, *self._busy.values()]:
            worker.channel.close()
        self._plain.abandon()
        self._full.abandon()
        self._forget()


_pools: "weakref.WeakSet[Pool]" = weakref.WeakSet()
_default: Pool | None = None
_default_lock = threading.Lock()


def default() -> Pool:
    """Return the pool of this process; the first call creates it, and it closes at exit."""
    global _default
    with _default_lock:
        if _default is None or _default.is_closed:
            _default = Pool()
        return _default


def _after_fork() -> None:
    global _default_lock
    _default_lock = threading.Lock()
    for pool in list(_pools):
        pool._abandon()


@atexit.register
def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


os.register_at_fork(after_in_child=_after_fork)
