"""The start of Ray: a cluster of the run's own on this machine, or the one that RAY_ADDRESS names."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import ray
from ray._private.services import find_bootstrap_address

from agentrl.cluster.ray.actors import first_line
from agentrl.cluster.ray.authentication import Authentication
from agentrl.errors import RunError, catch

CONNECT_S = 10.0


def is_local() -> bool:
    """Return whether runs start Ray themselves, on this machine alone."""
    return not os.environ.get("RAY_ADDRESS")


class Connection:
    """The connection of this process to Ray; raises RunError if there is none. `folder` is that of the run."""

    def __init__(self, namespace: str, folder: Path) -> None:
        _quiet()
        if ray.is_initialized():
            raise RunError(
                "Ray is initialised in this process already, by another run or by your own code. Wait for that run, or "
                "call ray.shutdown(); or start this run in a process of its own"
            )
        self._authentication = Authentication()
        if is_local():
            self._authentication.begin(folder)
        else:
            address = _reached(os.environ["RAY_ADDRESS"])
            self._authentication.join(address)
        with _own_handlers():
            started = catch(_start_ray, namespace)
        if started.error is not None:
            self.close()  # what it had started already
            raise RunError(_why_not(started.error)) from started.error

    def close(self) -> None:
        """End the connection, and Ray where the run started it. Idempotent."""
        ray.shutdown()
        self._authentication.end()


def _start_ray(namespace: str) -> None:
    quiet: dict[str, Any] = {"namespace": namespace, "log_to_driver": False, "configure_logging": False}
    if is_local():
        ray.init(address="local", include_dashboard=False, object_store_memory=_object_store_bytes(), **quiet)
    else:
        ray.init(address="auto", **quiet)


def _reached(address: str) -> str:
    """Return the host and port of a cluster, "" where only Ray knows it.

    Raises RunError if nothing listens there: Ray itself would try silently for a minute.
    """
    if address == "auto":
        address = find_bootstrap_address(None) or ""
    host, _, port = address.rpartition(":")
    if "/" in host or not (host and port.isdigit()):  # "ray://…": left to Ray
        return ""
    reached = catch(socket.create_connection, (host.strip("[]"), int(port)), CONNECT_S)
    if reached.error is not None:
        raise RunError(_why_not(reached.error)) from reached.error
    reached.value.close()
    return address


def _quiet() -> None:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DISABLE_IMPORT_WARNING", "1")
    # By default Ray gives its workers niceness 15; here they are the work itself.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # It reports that Ray uses a token, as the run wants.
    logging.getLogger("ray._private.authentication.authentication_token_setup").setLevel(logging.ERROR)


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


def _why_not(error: Exception) -> str:
    """Say why Ray did not start, and what to do."""
    remedy = (
        "Check memory, /dev/shm and disk with `agentrl doctor`, wait until the machine is less busy, and start the "
        "command again; Ray's own log is in /tmp/ray/session_latest/logs"
        if is_local()
        else f"RAY_ADDRESS is {os.environ['RAY_ADDRESS']}: check that cluster with `ray status`, or unset the variable"
    )
    return f"Ray did not start: {first_line(error).rstrip('.')}. {remedy}."


def _object_store_bytes() -> int:
    free = psutil.virtual_memory().available
    return int(min(2 << 30, max(128 << 20, free // 10)))
