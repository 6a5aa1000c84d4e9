"""A rival in a process of its own, so that neither side shares threads, memory or a garbage collector."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

END_S = 20.0


class Arm:
    """`factory(*args)` lives in a new process that sees `env`; its methods are called from here, one at a time."""

    def __init__(self, factory: Callable[..., Any], *args: Any, env: Mapping[str, str] | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, factory, args), daemon=False)
        with _environment(env or {}):
            self._process.start()
        theirs.close()
        self._answer()

    def call(self, method: str, *args: Any) -> Any:
        """The result of a method; raises RuntimeError with what it raised."""
        self._pipe.send((method, args))
        return self._answer()

    async def acall(self, method: str, *args: Any) -> Any:
        """`call`, while the event loop goes on."""
        return await asyncio.to_thread(self.call, method, *args)

    def close(self) -> None:
        """End the process. Idempotent."""
        if self._process.is_alive():
            self._pipe.send(None)
            self._process.join(END_S)
            self._process.kill()
        self._process.join()

    def _answer(self) -> Any:
        try:
            error, result = self._pipe.recv()
        except EOFError:
            self._process.join(END_S)
            raise RuntimeError(f"the process of this arm ended with {self._process.exitcode}") from None
        if error:
            raise RuntimeError(error)
        return result


def threads() -> dict[str, str]:
    """Every arm may use all cores: one works at a time."""
    return {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))), "TOKENIZERS_PARALLELISM": "false"}


def _serve(pipe: Any, factory: Callable[..., Any], args: tuple[Any, ...]) -> None:
    served = factory(*args)
    pipe.send(("", None))
    while (request := pipe.recv()) is not None:
        method, arguments = request
        try:
            pipe.send(("", getattr(served, method)(*arguments)))
        except (RuntimeError, ValueError, TypeError) as error:
            pipe.send((f"{type(error).__name__}: {error}", None))
    pipe.close()
    os._exit(0)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """The children that start inside see these variables."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
