"""An AsyncLLM and its processes: started, called under deadlines, and ended."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agentrl.engine.vllm.printed import Printed, points_elsewhere
from agentrl.engine.vllm.settings import VllmSpec, engine_args, environment
from agentrl.errors import DeadlineError, EngineDiedError, EngineError, EngineRefusedError

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from vllm.v1.engine.async_llm import AsyncLLM

T = TypeVar("T")

_CLOSE_S = 10.0
_ABANDON_S = 60.0


class VllmProcess:
    """An AsyncLLM in this process, its EngineCore in a child. Every call ends when the child dies."""

    def __init__(self, spec: VllmSpec) -> None:
        self._spec = spec
        self._llm: AsyncLLM | None = None
        self._children: list[BaseProcess] = []
        self._death: asyncio.Future[None] | None = None

    async def start(self, deadline_s: float) -> None:
        """Load the model, with the environment that vllm reads when it is imported."""
        os.environ.update(environment(self._spec, sorted(os.sched_getaffinity(0))))
        if self._spec.scratch:
            await asyncio.to_thread(Path(self._spec.scratch).mkdir, 0o700, parents=True, exist_ok=True)
        before, printed = _cores(), Printed()
        building = asyncio.create_task(asyncio.to_thread(self._build))
        await asyncio.wait({building}, timeout=deadline_s)
        if not building.done():
            await _abandon(building, before)
            raise DeadlineError(f"the engine of {self._spec.model} did not start within {deadline_s:g} s")
        self._children = list(_cores() - before)
        if (error := building.exception()) is not None:
            why = await asyncio.to_thread(printed.first_error) if points_elsewhere(error) else ""
            raise EngineError(f"vLLM could not start with {self._spec.model}: {why or error}") from error
        self._death = asyncio.get_running_loop().create_future()
        for child in self._children:
            asyncio.get_running_loop().add_reader(child.sentinel, self._on_death)

    async def call(self, what: str, call: Callable[[AsyncLLM], Awaitable[T]], deadline_s: float) -> T:
        """Await `call(llm)` until the deadline, the engine's death or a cancellation, which aborts the request."""
        if self._llm is None or self._death is None:
            self.raise_if_dead(what)
            raise EngineRefusedError(f"{what}: the engine was not started")
        task: asyncio.Future[T] = asyncio.ensure_future(call(self._llm))
        try:
            waited_for: list[asyncio.Future[Any]] = [task, self._death]
            await asyncio.wait(waited_for, timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()
        if not task.done() or self._death.done():
            await asyncio.wait({task}, timeout=1.0)
        self.raise_if_dead(what)
        if not task.done() or task.cancelled():
            raise DeadlineError(f"{what} took longer than {deadline_s:g} s")
        return _result(what, task)

    async def call_workers(self, what: str, deadline_s: float, method: str, *args: Any) -> list[Any]:
        """Call a method of every worker of vLLM; returns their results."""
        results: list[Any] = await self.call(what, lambda llm: llm.collective_rpc(method, args=args), deadline_s)
        return results

    def raise_if_dead(self, what: str) -> None:
        """Raise EngineDiedError if a child has ended, or the engine was closed."""
        if self._death is not None and self._death.done():
            raise EngineDiedError(f"{what}: the engine process of {self._spec.model} is gone; restart the engine")

    async def close(self) -> None:
        """End the engine and its processes; kill those that still run after 10 s."""
        self._on_death()
        if self._llm is not None:
            llm, self._llm = self._llm, None
            await asyncio.to_thread(llm.shutdown, _CLOSE_S)
        await asyncio.to_thread(_kill, self._children)

    def pids(self) -> list[int]:
        """Return the ids of this process and of the engine's children."""
        return [os.getpid(), *(child.pid for child in self._children if child.pid is not None)]

    def _build(self) -> None:
        from vllm.v1.engine.async_llm import AsyncLLM

        # Not returned: a frame of this thread that vLLM keeps alive would hold the engine until the process ends.
        self._llm = AsyncLLM.from_engine_args(engine_args(self._spec))

    def _on_death(self) -> None:
        if self._death is None or self._death.done():
            return
        self._death.set_result(None)
        for child in self._children:
            asyncio.get_running_loop().remove_reader(child.sentinel)


async def _abandon(building: asyncio.Task[None], before: set[BaseProcess]) -> None:
    """End the thread that builds an engine, by killing the child that it starts."""
    ends_at = time.monotonic() + _ABANDON_S
    while not building.done() and time.monotonic() < ends_at:
        await asyncio.wait({building}, timeout=0.1)
        _kill(_cores() - before)
    if building.done():
        building.exception()  # retrieved, so that asyncio does not log it


def _result(what: str, task: asyncio.Future[T]) -> T:
    from vllm.exceptions import VLLMClientError
    from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

    try:
        return task.result()
    except EngineDeadError as error:
        raise EngineDiedError(f"{what}: the engine process is gone; restart the engine") from error
    except (VLLMClientError, ValueError) as error:
        raise EngineRefusedError(f"{what}: {error}") from error
    except EngineGenerateError as error:
        raise EngineError(f"{what}: {error.__cause__ or error}") from error


def _cores() -> set[BaseProcess]:
    """Return the EngineCores among the children of this process."""
    return {child for child in multiprocessing.active_children() if child.name.startswith("EngineCore")}


def _kill(children: Collection[BaseProcess]) -> None:
    for child in children:
        child.kill()
    for child in children:
        child.join(_CLOSE_S)
