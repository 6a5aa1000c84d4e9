"""An engine in another process, called as if it were here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from agentrl.engine.protocol import Engine
from agentrl.engine.wire import Transport

P = ParamSpec("P")
R = TypeVar("R")

MARGIN_S = 10.0
TRANSPORT_MARGIN_S = 60.0


class Actor(Protocol):
    """The process of an EngineServer as its callers see it: `agentrl.cluster.ray.actors.ActorHandle`."""

    name: str
    key: str

    async def call(self, method: str, *args: Any, deadline_s: float) -> Any:
        """Call a method of the object in the process."""

    def kill(self) -> None:
        """End the process at once. Idempotent."""


def forward(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], margin_s: float = MARGIN_S
) -> Callable[Concatenate[RemoteEngine, P], Coroutine[Any, Any, R]]:
    """Make the method of RemoteEngine that calls `method` in the actor.

    The caller waits `margin_s` longer than the deadline among the arguments, which is the last one if there is one.
    """
    name = method.__name__
    _, *parameters = inspect.signature(method).parameters
    is_timed = parameters[-1:] in (["deadline_s"], ["timeout_s"])

    def call(engine: RemoteEngine, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        values: tuple[Any, ...] = args
        if kwargs:
            values = (*args, *(kwargs[name] for name in parameters[len(args) :]))
        return engine.actor.call(name, *values, deadline_s=values[-1] + margin_s if is_timed else margin_s)

    return call


class RemoteEngine:
    """An EngineServer in another process: an Engine to the run, a Transport to the rollout workers. Picklable.

    `host` is the address of its host in the cluster, once it has started.
    """

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.host = ""

    start = forward(Engine.start)
    generate = forward(Engine.generate)
    score = forward(Engine.score)
    pause = forward(Engine.pause)
    resume = forward(Engine.resume)
    sleep = forward(Engine.sleep)
    wake = forward(Engine.wake)
    init_transfer = forward(Engine.init_transfer)
    start_update = forward(Engine.start_update)
    load = forward(Engine.load)
    finish_update = forward(Engine.finish_update)
    check = forward(Engine.check)
    version = forward(Engine.version)

    submit = forward(Transport.submit, TRANSPORT_MARGIN_S)
    collect = forward(Transport.collect, TRANSPORT_MARGIN_S)
    cancel = forward(Transport.cancel, TRANSPORT_MARGIN_S)

    async def close(self, deadline_s: float = MARGIN_S) -> None:
        """End the engine and every process it started; when this takes too long they end with the actor."""
        await self.actor.call("close", deadline_s=deadline_s)

    async def pids(self) -> list[int]:
        """Return the ids of the engine's processes."""
        pids: list[int] = await self.actor.call("pids", deadline_s=MARGIN_S)
        return pids
