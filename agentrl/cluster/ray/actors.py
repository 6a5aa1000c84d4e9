"""Objects in processes of their own, called with deadlines."""

from __future__ import annotations

import asyncio
import copy
import inspect
import itertools
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil
import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError

from agentrl.cluster.placement import ANYWHERE, Place
from agentrl.cluster.ports import free_port
from agentrl.cluster.processes import ProcessRecord, identified, this_host
from agentrl.errors import AgentRLError, DeadlineError, catch

CONCURRENT_CALLS = 100_000
UNREACHABLE_S = 1.0
"""How often a process is called again whose host cannot be reached."""
PROBE_S = 15.0
"""How often something is sent to a process that has not answered yet.

Ray's server drops a connection that was cut for 20 seconds, and the answer with it; the caller, who waits, notices
after minutes unless it sends something.
"""
_CALLER = uuid.uuid4().hex
_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class ActorSpec:
    """Specification of a Ray actor: `factory(*args)` runs in its process when `ActorHandle.make` is called.

    `is_blocking` objects answer one call at a time in their main thread; others run on an asyncio loop. Calls raise
    `died` when the process is gone. While its host cannot be reached, `ActorHandle.call` of a blocking object waits,
    for what such an object holds is not replaced: the call runs once, though it may be sent again. That of another
    object raises `died`.
    """

    name: str
    factory: Callable[..., Any]
    args: tuple[Any, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    place: Place = ANYWHERE
    is_blocking: bool = False
    died: type[AgentRLError] = AgentRLError


class _Host:
    """The process of an object whose methods are coroutines (or cheap)."""

    def __init__(self, factory: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._factory, self._args = factory, args
        self._object: Any = None

    async def make(self, role: str, *args: Any) -> ProcessRecord:
        self._object = self._factory(*self._args, *args)
        return identified(role, [os.getpid()])[0]

    async def call(self, method: str, *args: Any) -> Any:
        result = getattr(self._object, method)(*args)
        return await result if inspect.isawaitable(result) else result

    async def identify(self, role: str, pids: Sequence[int]) -> list[ProcessRecord]:
        return identified(role, pids)

    async def address(self) -> tuple[str, int]:
        return node_address(), free_port()


@dataclass
class _Answered:
    """A call that was made: what it returned, or what it raised."""

    number: int
    value: Any = None
    error: Exception | None = None

    def again(self, number: int, method: str) -> Any:
        """Answer it again, to the caller who sent it again."""
        if number < self.number:
            raise AgentRLError(f"the answer to {method} was lost on the way")
        if self.error is not None:
            raise self.error
        return self.value


class _BlockingHost:
    """The process of an object that computes in its main thread.

    A caller numbers its calls upwards. When it sends one again, for its answer may be lost, it gets the same answer.
    """

    def __init__(self, factory: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._factory, self._args = factory, args
        self._object: Any = None
        self._answered: dict[str, _Answered] = {}  # the last call of each caller

    def make(self, role: str, *args: Any) -> ProcessRecord:
        self._object = self._factory(*self._args, *args)
        return identified(role, [os.getpid()])[0]

    def call(self, caller: str, number: int, method: str, *args: Any) -> Any:
        if caller in self._answered and number <= self._answered[caller].number:
            return self._answered[caller].again(number, method)
        answered = self._answered[caller] = _Answered(number)  # the last one may be large, and is freed
        try:
            answered.value = getattr(self._object, method)(*args)
        except Exception as error:
            answered.error = _without_frames(error)
            raise
        return answered.value

    def probe(self) -> None:
        """Do nothing."""

    def devices(self) -> list[str]:
        return list(ray.get_runtime_context().get_accelerator_ids()["GPU"])

    def address(self) -> tuple[str, int]:
        return node_address(), free_port()


def _without_frames(error: Exception) -> Exception:
    """Return a copy of an error that does not keep the frames it came through, and their tensors."""
    copied = catch(copy.copy, error).value  # not every class of error can be copied
    return copied if copied is not None else AgentRLError(f"{type(error).__name__}: {error}")


class ActorHandle:
    """An object in an actor as its callers see it. Picklable: it may be sent to other actors."""

    def __init__(self, name: str, actor: Any, died: type[AgentRLError], *, is_blocking: bool = False) -> None:
        self.name, self._actor, self._died, self._is_blocking = name, actor, died, is_blocking
        self.key = uuid.uuid4().hex
        self.host = ""
        """The machine on which it was made."""

    @property
    def where(self) -> str:
        """What follows its name in messages: " on HOST" once it is made on another host than this."""
        return f" on {self.host}" if self.host not in ("", this_host()) else ""

    async def call(self, method: str, *args: Any, deadline_s: float) -> Any:
        """Call a method. Raises what it raises, DeadlineError, or the `died` of the spec when the process is gone.

        Cancelling the caller, or running out of time, cancels the call in the process.
        """
        if not self._is_blocking:
            return await self._answer(self._actor.call.remote(method, *args), method, deadline_s)
        probing = asyncio.create_task(self._probe())
        try:
            return await self._call_once(method, args, deadline_s)
        finally:
            probing.cancel()

    async def _call_once(self, method: str, args: tuple[Any, ...], deadline_s: float) -> Any:
        """Send a call of a blocking object until it is answered."""
        number, ends_at = next(_NUMBERS), time.monotonic() + deadline_s
        while True:
            ref = self._actor.call.remote(_CALLER, number, method, *args)
            try:
                return await self._answer(ref, method, deadline_s, ends_at - time.monotonic())
            except ActorUnavailableError:
                if ends_at - time.monotonic() <= UNREACHABLE_S:
                    raise self._late(method, deadline_s) from None
                await asyncio.sleep(UNREACHABLE_S)

    async def _probe(self) -> None:
        while True:
            await asyncio.sleep(PROBE_S)
            self._actor.probe.remote()

    def begin(self, method: str, *args: Any) -> Any:
        """Call a method of an object whose methods are coroutines, and wait for nothing.

        Returns a reference, which may be the argument of another actor's call.

        The result stays on the actor's host until then.
        """
        return self._actor.call.remote(method, *args)

    async def make(self, *args: Any, deadline_s: float) -> ProcessRecord:
        """Make the object, with `args` after those of the spec; returns its process."""
        process: ProcessRecord = await self._answer(self._actor.make.remote(self.name, *args), "start", deadline_s)
        self.host = process.host
        return process

    async def identify(self, pids: Sequence[int], deadline_s: float) -> list[ProcessRecord]:
        """Return the processes with these ids on the host of an object whose methods are coroutines."""
        found: list[ProcessRecord] = await self._answer(
            self._actor.identify.remote(self.name, list(pids)), "identify", deadline_s
        )
        return found

    async def address(self, deadline_s: float) -> tuple[str, int]:
        """Return the address of the actor's host and a port that is free there; also before its object is made."""
        address: tuple[str, int] = await self._answer(self._actor.address.remote(), "start", deadline_s)
        return address

    async def devices(self, deadline_s: float) -> list[str]:
        """Return the GPUs of a blocking actor, as its host numbers them."""
        devices: list[str] = await self._answer(self._actor.devices.remote(), "start", deadline_s)
        return devices

    def kill(self) -> None:
        """End the process at once. Idempotent."""
        ray.kill(self._actor, no_restart=True)

    async def _answer(self, ref: Any, method: str, deadline_s: float, left_s: float | None = None) -> Any:
        """Return a call's result. With `left_s` of the deadline ActorUnavailableError is raised: it is sent again."""
        try:
            async with asyncio.timeout(deadline_s if left_s is None else left_s):
                return await ref
        except TimeoutError:
            ray.cancel(ref)
            raise self._late(method, deadline_s) from None
        except asyncio.CancelledError:
            ray.cancel(ref)
            raise
        except RayTaskError as error:
            raise self._unwrapped(error, method) from error
        except ActorUnavailableError as error:
            if left_s is not None:
                raise
            raise self._died(
                f"{self.name}{self.where}: its host could not be reached during {method} ({first_line(error)})"
            ) from None
        except RayActorError as error:
            raise self._died(
                f"{self.name}{self.where}: its process died during {method} ({first_line(error)})"
            ) from None
        except RayError as error:
            raise self._died(f"{self.name}{self.where}: {method} failed ({first_line(error)})") from error

    def _late(self, method: str, deadline_s: float) -> DeadlineError:
        return DeadlineError(f"{self.name}{self.where}: {method} took longer than {deadline_s:.0f} s")

    def _unwrapped(self, error: RayTaskError, method: str) -> BaseException:
        cause = getattr(error, "cause", None)
        if isinstance(cause, AgentRLError):
            return cause
        raised = error if cause is None else cause
        return AgentRLError(f"{self.name}: {method} raised {type(raised).__name__}: {raised}")


def node_address() -> str:
    """Return the address of this machine in the cluster."""
    address: str = ray.util.get_node_ip_address()
    return address


def interface_of(address: str) -> str:
    """Return the name of the network interface of this machine that has an address; "" if none has it."""
    found = psutil.net_if_addrs().items()
    return next((name for name, addresses in found if address in {each.address for each in addresses}), "")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text that is not empty, its type's name without one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def start_actor(spec: ActorSpec, **placed: Any) -> ActorHandle:
    """Start the process of an actor, with options of Ray that say where; `ActorHandle.make` then makes its object."""
    options: dict[str, Any] = {"num_cpus": 0, "num_gpus": spec.place.gpus, "max_restarts": 0, **placed}
    if not spec.is_blocking:
        options["max_concurrency"] = CONCURRENT_CALLS
    if spec.env:
        options["runtime_env"] = {"env_vars": dict(spec.env)}
    host = _BlockingHost if spec.is_blocking else _Host
    actor = ray.remote(host).options(**options).remote(spec.factory, spec.args)
    return ActorHandle(spec.name, actor, spec.died, is_blocking=spec.is_blocking)
