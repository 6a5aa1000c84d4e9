"""Killable worker processes behind a call that is safe from any thread, event loop and forked process."""

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl_math.limits import COMPUTE_S, QUEUE_S, START_S


class PoolError(RuntimeError):
    """The pool could not give an answer: no fault of the answer's, as far as anyone can tell."""

    fault = "infra"


class OverrunError(PoolError):
    """The comparison was killed at its deadline."""


class WorkerDiedError(PoolError):
    """The worker ended while it computed."""


@dataclass
class _Worker:
    pid: int
    channel: socket.socket
    is_full: bool
    served: int = 0


class Pool:
    """Up to `size` workers, started when first needed; a worker that overruns `compute_s` is killed and replaced.

    `ask` waits at most `queue_s` for a worker and then at most `compute_s` for its answer.
    """

    def __init__(self, size: int | None = None, compute_s: float = COMPUTE_S, queue_s: float = QUEUE_S) -> None:
        self.size = size or max(2, min(8, (os.cpu_count() or 2) // 4))
        self.compute_s, self.queue_s = compute_s, queue_s
        self._idle: list[_Worker] = []
        self._busy: set[int] = set()
        self._free = threading.BoundedSemaphore(self.size)
        self._lock = threading.Lock()
        self._nursery: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._closed = False
        self._threads: ThreadPoolExecutor | None = None
        _pools.add(self)

    @property
    def pids(self) -> list[int]:
        """The nursery's and the workers' process ids."""
        workers = [worker.pid for worker in self._idle] + list(self._busy)
        return ([self._nursery.pid] if self._nursery else []) + workers

    @property
    def threads(self) -> ThreadPoolExecutor:
        """Threads that wait for workers on behalf of event loops."""
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.size, thread_name_prefix="agentrl-math")
            return self._threads

    def ask(self, request: dict[str, Any], waited_s: float = 0.0) -> dict[str, Any]:
        """A worker's reply; PoolError when there is none."""
        if not self._free.acquire(timeout=max(0.0, self.queue_s - waited_s)):
            raise PoolError(f"no verifier was free within {self.queue_s} s")
        try:
            return self._ask(request)
        finally:
            self._free.release()

    def close(self) -> None:
        """End every process of the pool; safe to call twice."""
        with self._lock:
            self._closed = True
            self._stop()
            threads, self._threads = self._threads, None
        if threads:
            threads.shutdown(wait=False)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        full = bool(request.get("full"))
        worker = self._take(full)
        try:
            return self._exchange(worker, request)
        except WorkerDiedError:
            if not worker.served:
                raise
        return self._exchange(self._spawned(full), request)

    def _exchange(self, worker: _Worker, request: dict[str, Any]) -> dict[str, Any]:
        """Send, wait, keep the worker; a worker that fails is ended."""
        kept = False
        try:
            worker.channel.send(json.dumps(request).encode())
            reply = self._reply(worker)
            worker.served += 1
            kept = True
            return reply
        except TimeoutError:
            raise OverrunError(f"not decided within {self.compute_s} s") from None
        except OSError as problem:
            raise WorkerDiedError(f"the verifier process ended: {problem}") from None
        finally:
            self._put(worker, kept)

    def _reply(self, worker: _Worker) -> dict[str, Any]:
        worker.channel.settimeout(self.compute_s)
        message = worker.channel.recv(1 << 18)
        if not message:
            raise WorkerDiedError("the verifier process ended (killed, or out of memory)")
        reply: dict[str, Any] = json.loads(message)
        return reply

    def _take(self, full: bool) -> _Worker:
        """An idle worker of the kind needed, or a new one; a plain one then makes room for it."""
        with self._lock:
            fit = next((worker for worker in reversed(self._idle) if worker.is_full or not full), None)
            if fit:
                self._idle.remove(fit)
                self._busy.add(fit.pid)
                return fit
            surplus = self._idle.pop() if len(self._idle) + len(self._busy) >= self.size else None
        if surplus:
            self._put(surplus, kept=False)
        return self._spawned(full)

    def _put(self, worker: _Worker, kept: bool) -> None:
        with self._lock:
            self._busy.discard(worker.pid)
            if kept and not self._closed:
                self._idle.append(worker)
                return
            worker.channel.close()
            if self._control:
                with contextlib.suppress(OSError):
                    self._control.send(f"kill {worker.pid}".encode())

    def _spawned(self, full: bool) -> _Worker:
        with self._lock:
            if self._closed:
                raise PoolError("the verifier pool is closed")
            try:
                worker = self._spawn(full)
            except OSError:
                self._stop()
                worker = self._spawn_again(full)
            self._busy.add(worker.pid)
            return worker

    def _spawn_again(self, full: bool) -> _Worker:
        try:
            return self._spawn(full)
        except OSError as problem:
            self._stop()
            raise PoolError(f"no verifier process could be started: {problem}") from None

    def _spawn(self, full: bool) -> _Worker:
        control = self._control or self._start()
        control.settimeout(START_S)
        control.send(b"full" if full else b"plain")
        message, fds, _, _ = socket.recv_fds(control, 64, 1)
        if not message or not fds:
            raise ConnectionResetError("the nursery ended")
        return _Worker(int(message), socket.socket(fileno=fds[0]), full)

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        source = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
        with theirs:
            self._nursery = subprocess.Popen(
                [sys.executable, "-m", "agentrl_math.nursery", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
        self._control = ours
        return ours

    def _stop(self) -> None:
        """Close the control socket, at which the nursery ends its workers and itself."""
        for worker in self._idle:
            worker.channel.close()
        self._idle.clear()
        if self._control:
            self._control.close()
        nursery, self._nursery, self._control = self._nursery, None, None
        if nursery:
            try:
                nursery.wait(timeout=5)
            except subprocess.TimeoutExpired:
                nursery.kill()
                nursery.wait()

    def _abandon(self) -> None:
        """In a forked child: let go of the parent's processes without touching them."""
        for held in [*(worker.channel for worker in self._idle), self._control]:
            if held:
                held.close()
        self._idle, self._busy, self._nursery, self._control, self._threads = [], set(), None, None, None
        self._free, self._lock = threading.BoundedSemaphore(self.size), threading.Lock()


_pools: "weakref.WeakSet[Pool]" = weakref.WeakSet()
_default: Pool | None = None
_default_lock = threading.Lock()


def default() -> Pool:
    """This process's pool, made when first asked for and closed when the process ends."""
    global _default
    with _default_lock:
        if _default is None or _default._closed:
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
