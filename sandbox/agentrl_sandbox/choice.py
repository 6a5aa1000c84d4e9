"""Which backend: the best one that this machine has, or the one that was asked for, or a refusal with the fix."""

from __future__ import annotations

import difflib
import os
from functools import cache

from agentrl_sandbox.errors import UnavailableError
from agentrl_sandbox.types import Backend

NAMES = ("bubblewrap", "docker", "process", "remote")
SAFE = ("bubblewrap", "docker")  # best first; `process` is no boundary, so nobody gets it without asking
URL, TOKEN, CERTIFICATE = "AGENTRL_SANDBOX_URL", "AGENTRL_SANDBOX_TOKEN", "AGENTRL_SANDBOX_CERTIFICATE"


def choose(name: str = "auto") -> Backend:
    """The backend of this name; `auto`: the server that AGENTRL_SANDBOX_URL names, else the best of this machine.

    Raises UnavailableError that says what is missing and what to do.
    """
    if name == "auto":
        return _make("remote") if os.environ.get(URL) else best()
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UnavailableError(f"unknown sandbox backend {name!r}.{hint} Known: auto, {', '.join(NAMES)}.")
    return _make(name)


def describe(name: str = "auto") -> str:
    """Which backend this name stands for, and what enforces its limits; raises what `choose` raises."""
    backend = _asked_about(name)
    return f"sandboxes by {backend.name} ({backend.describe()})"


@cache
def _asked_about(name: str) -> Backend:
    """One for all who ask: docker's keeps a connection."""
    return choose(name)


def best() -> Backend:
    """The best backend of this machine's own; UnavailableError where none works."""
    reasons = []
    for name in SAFE:
        try:
            return _make(name)
        except UnavailableError as error:
            reasons.append(str(error))
    raise UnavailableError(
        f"no sandbox backend works here. {' '.join(reasons)} Or ask for 'process', which is no security boundary."
    )


def _make(name: str) -> Backend:
    """Each is imported when it is asked for: docker and httpx may not be installed."""
    try:
        return _imported(name)
    except ModuleNotFoundError as error:
        raise UnavailableError(f"{name}: {error.name} is not installed. pip install {error.name}") from error


def _imported(name: str) -> Backend:
    if name == "bubblewrap":
        from agentrl_sandbox.backends.bubblewrap import BubblewrapBackend

        return BubblewrapBackend()
    if name == "docker":
        from agentrl_sandbox.backends.docker import DockerBackend

        return DockerBackend()
    if name == "process":
        from agentrl_sandbox.backends.process import ProcessBackend

        return ProcessBackend()
    from agentrl_sandbox.backends.remote_httpx import RemoteBackend

    if not os.environ.get(URL):
        raise UnavailableError(
            f"remote: {URL} is not set. Set it and {TOKEN} to the sandbox server's address and token"
        )
    backend = RemoteBackend(os.environ[URL], os.environ.get(TOKEN, ""), os.environ.get(CERTIFICATE, ""))
    backend.check()
    return backend
