"""Ray actors with deadlines: the only module that imports Ray."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil
import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from agentrl.cluster.processes import ProcessRegistry
from agentrl.errors import AgentRLError, DeadlineError, RunError, catch

CONCURRENT_CALLS = 100_000
CONNECT_S = 10.0


@dataclass(frozen=True)
class ActorSpec:
    """Specification of a Ray actor: `factory(*args)` runs in its process when `ActorHandle.make` is called.

    `is_blocking` objects answer one call at a time in their main thread; others run on an asyncio loop. `gpus` may be
    a fraction; actors with the same `bundle` share its GPUs. Calls raise `died` when the process is gone.
    """

    name: str
    factory: Callable[..., Any]
    args: tuple[Any, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    gpus: float = 0.0
    bundle: int | None = None
    is_blocking: bool = False
    died: type[AgentRLError] = AgentRLError


class _Host:
    """The process of an object whose methods are coroutines (or cheap)."""

    def __init__(self, factory: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._factory, self._args = factory, args
        self._object: Any = None

    async def make(self, *args: Any) -> int:
        self._object = self._factory(*self._args, *args)
        return os.getpid()

    async def call(self, method: str, *args: Any) -> Any:
        result = getattr(self._object, method)(*args)
        return await result if inspect.isawaitable(result) else result


class _BlockingHost:
    """The process of an object that computes in its main thread."""

    def __init__(self, factory: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._factory, self._args = factory, args
        self._object: Any = None

    def address(self) -> tuple[str, int]:
        return node_address(), free_port()

    def make(self, *args: Any) -> int:
        self._object = self._factory(*self._args, *args)
        return os.getpid()

    def call(self, method: str, *args: Any) -> Any:
        return getattr(self._object, method)(*args)


class ActorHandle:
    """An object in an actor as its callers see it. Picklable: it may be sent to other actors."""

    def __init__(self, name: str, actor: Any, died: type[AgentRLError]) -> None:
        self.name, self._actor, self._died = name, actor, died
        self.key = uuid.uuid4().hex

    async def call(self, method: str, *args: Any, deadline_s: float) -> Any:
        """Call a method. Raises what it raises, DeadlineError, or the `died` of the spec when the process is gone.

        Cancelling the caller, or running out of time, cancels the call in the process.
        """
        ref = self._actor.call.remote(method, *args)
        return await self._answer(ref, method, deadline_s)

    async def make(self, *args: Any, deadline_s: float) -> int:
        """Make the object, with `args` after those of the spec; returns the id of its process."""
        pid: int = await self._answer(self._actor.make.remote(*args), "start", deadline_s)
        return pid

    async def address(self, deadline_s: float) -> tuple[str, int]:
        """Return the address of a blocking actor's machine and a port that is free there, before its object is made."""
        address: tuple[str, int] = await self._answer(self._actor.address.remote(), "start", deadline_s)
        return address

    def kill(self) -> None:
        """End the process at once. Idempotent."""
        ray.kill(self._actor, no_restart=True)

    async def _answer(self, ref: Any, method: str, deadline_s: float) -> Any:
        try:
            async with asyncio.timeout(deadline_s):
                return await ref
        except TimeoutError:
            ray.cancel(ref)
            raise DeadlineError(f"{self.name}: {method} took longer than {deadline_s:.0f} s") from None
        except asyncio.CancelledError:
            ray.cancel(ref)
            raise
        except RayTaskError as error:
            raise self._unwrapped(error, method) from error
        except RayActorError as error:
            raise self._died(f"{self.name}: its process died during {method} ({_first_line(error)})") from None
        except RayError as error:
            raise self._died(f"{self.name}: {method} failed ({_first_line(error)})") from error

    def _unwrapped(self, error: RayTaskError, method: str) -> BaseException:
        cause = getattr(error, "cause", None)
        if isinstance(cause, AgentRLError):
            return cause
        raised = error if cause is None else cause
        return AgentRLError(f"{self.name}: {method} raised {type(raised).__name__}: {raised}")


class Cluster:
    """The Ray side of one run: a cluster of its own on this machine, or the one that RAY_ADDRESS names."""

    def __init__(
        self, namespace: str, registry: ProcessRegistry, bundles: list[dict[str, float]] | None = None
    ) -> None:
        self._registry = registry
        _quiet()
        if ray.is_initialized():
            raise RunError(
                "Ray is initialised in this process already, by another run or by your own code. Wait for that run, or "
                "call ray.shutdown(); or start this run in a process of its own"
            )
        if not self.is_local:
            _check_reached(os.environ["RAY_ADDRESS"])
        before = set(psutil.Process().children())  # the caller's own
        with _own_handlers():
            started = catch(_start_ray, namespace, self.is_local)
        self._processes = set(psutil.Process().children()) - before
        if started.error is not None:
            ray.shutdown()  # what it had started already
            raise RunError(_why_not(started.error, self.is_local)) from started.error
        self._group: PlacementGroup | None = placement_group(bundles, strategy="PACK") if bundles else None

    async def ready(self, deadline_s: float) -> None:
        """Register Ray's own processes, and wait until the cluster has reserved the bundles."""
        for process in self._processes:
            for child in (process, *process.children(recursive=True)):
                self.register("ray", child.pid)
        if self._group is None:
            return
        try:
            async with asyncio.timeout(deadline_s):
                await self._group.ready()
        except TimeoutError:
            raise RunError(
                f"the cluster did not provide {self._group.bundle_specs} within {deadline_s:.0f} s; it has "
                f"{ray.cluster_resources()}. Ask for fewer engines or ranks, or wait for the nodes."
            ) from None

    def spawn(self, spec: ActorSpec) -> ActorHandle:
        """Start a process; `ActorHandle.make` then makes its object."""
        host = _BlockingHost if spec.is_blocking else _Host
        options: dict[str, Any] = {"num_cpus": 0, "num_gpus": spec.gpus, "max_restarts": 0}
        if not spec.is_blocking:
            options["max_concurrency"] = CONCURRENT_CALLS
        if spec.env:
            options["runtime_env"] = {"env_vars": dict(spec.env)}
        if spec.bundle is not None and self._group is not None:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(self._group, spec.bundle)
        actor = ray.remote(host).options(**options).remote(spec.factory, spec.args)
        return ActorHandle(spec.name, actor, spec.died)

    @property
    def is_local(self) -> bool:
        """Whether this run started Ray, on this machine alone."""
        return not os.environ.get("RAY_ADDRESS")

    def register(self, role: str, pid: int) -> None:
        """Register a process of the run on this machine; on another one it ends with its Ray node."""
        if self.is_local:
            self._registry.register(role, pid)

    def share(self, value: Any) -> Any:
        """Put a value where every actor can read it, without sending it twice; pass the result as an argument."""
        return ray.put(value)

    def close(self) -> None:
        """End every process of the run. Idempotent."""
        ray.shutdown()


def node_address() -> str:
    """Return the address of this machine in the cluster."""
    address: str = ray.util.get_node_ip_address()
    return address


def free_port() -> int:
    """Return a free TCP port of this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def _check_reached(address: str) -> None:
    """Raise RunError if nothing listens at `host:port`: Ray itself would try silently for a minute."""
    host, _, port = address.rpartition(":")
    if "/" in host or not (host and port.isdigit()):  # "auto", "ray://…": left to Ray
        return
    reached = catch(socket.create_connection, (host.strip("[]"), int(port)), CONNECT_S)
    if reached.error is not None:
        raise RunError(_why_not(reached.error, is_local=False)) from reached.error
    reached.value.close()


def _quiet() -> None:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DISABLE_IMPORT_WARNING", "1")
    # By default Ray gives its workers niceness 15; here they are the work itself.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # It reports an authentication token that Ray itself makes and passes on.
    logging.getLogger("ray._private.authentication.authentication_token_setup").setLevel(logging.ERROR)


def _start_ray(namespace: str, is_local: bool) -> None:
    quiet: dict[str, Any] = {"namespace": namespace, "log_to_driver": False, "configure_logging": False}
    if is_local:
        ray.init(address="local", include_dashboard=False, object_store_memory=_object_store_bytes(), **quiet)
    else:
        ray.init(address="auto", **quiet)


@contextmanager
def _own_handlers() -> Iterator[None]:
    """Restore our signal handlers: Ray installs some that print a stack and end the process."""
    if threading.current_thread() is not threading.main_thread():  # no handler can be set there, of which Ray warns
        logging.getLogger("ray._private.worker").setLevel(logging.ERROR)
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _why_not(error: Exception, is_local: bool) -> str:
    """Say why Ray did not start, and what to do."""
    remedy = (
        "Check memory, /dev/shm and disk with `agentrl doctor`, wait until the machine is less busy, and start the "
        "command again; Ray's own log is in /tmp/ray/session_latest/logs"
        if is_local
        else f"RAY_ADDRESS is {os.environ['RAY_ADDRESS']}: check that cluster with `ray status`, or unset the variable"
    )
    return f"Ray did not start: {_first_line(error).rstrip('.')}. {remedy}."


def _object_store_bytes() -> int:
    free = psutil.virtual_memory().available
    return int(min(2 << 30, max(128 << 20, free // 10)))


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
