"""Which backend: the best one that this machine has, or the one that was asked for, or a refusal with the fix."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from functools import cache

from agentrl_sandbox.errors import PackagesError, UnavailableError
from agentrl_sandbox.packages import checked
from agentrl_sandbox.types import Backend

NAMES = ("bubblewrap", "docker", "process", "remote")
SAFE = ("bubblewrap", "docker")  # best first; `process` is no boundary, so nobody gets it without asking
URL, TOKEN, CERTIFICATE = "AGENTRL_SANDBOX_URL", "AGENTRL_SANDBOX_TOKEN", "AGENTRL_SANDBOX_CERTIFICATE"


def choose(name: str = "auto", packages: Sequence[str] = ()) -> Backend:
    """The backend of this name; `auto`: the server that AGENTRL_SANDBOX_URL names, else the best of this machine.

    Its programs can import `packages`, installed distributions by name, and what those require.
    Raises UnavailableError that says what is missing and what to do.
    """
    lent = checked(packages)
    if name == "auto":
        return _make("remote", lent) if os.environ.get(URL) else best(lent)
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UnavailableError(f"unknown sandbox backend {name!r}.{hint} Known: auto, {', '.join(NAMES)}.")
    return _make(name, lent)


def describe(name: str = "auto", packages: Sequence[str] = ()) -> str:
    """Which backend this name stands for, and what enforces its limits; raises what `choose` raises."""
    lent = checked(packages)
    backend = _asked_about(name, lent)
    return f"sandboxes by {backend.name} ({backend.describe()}){' with ' if lent else ''}{', '.join(lent)}"


@cache
def _asked_about(name: str, packages: tuple[str, ...]) -> Backend:
    """Return one for all who ask: docker's keeps a connection."""
    return choose(name, packages)


def best(packages: tuple[str, ...] = ()) -> Backend:
    """Return the best backend of this machine's own; UnavailableError where none works."""
    reasons = []
    for name in SAFE:
        try:
            return _make(name, packages)
        except PackagesError:  # it works: another would not be what was wanted either
            raise
        except UnavailableError as error:
            reasons.append(str(error))
    raise UnavailableError(
        f"no sandbox backend works here. {' '.join(reasons)} Or ask for 'process', which is no security boundary."
    )


def _make(name: str, packages: tuple[str, ...]) -> Backend:
    """Return each is imported when it is asked for: docker and httpx may not be installed."""
    try:
        return _imported(name, packages)
    except ModuleNotFoundError as error:
        raise UnavailableError(f"{name}: {error.name} is not installed. pip install {error.name}") from error


def _imported(name: str, packages: tuple[str, ...]) -> Backend:
    if name == "bubblewrap":
        from agentrl_sandbox.backends.bubblewrap import BubblewrapBackend

        return BubblewrapBackend(packages)
    if name == "docker":
        from agentrl_sandbox.backends.docker import DockerBackend

        return DockerBackend(packages)
    if name == "process":
        from agentrl_sandbox.backends.process import ProcessBackend

        return ProcessBackend(packages)
    from agentrl_sandbox.backends.remote_httpx import RemoteBackend

    if not os.environ.get(URL):
        raise UnavailableError(
            f"remote: {URL} is not set. Set it and {TOKEN} to the sandbox server's address and token"
        )
    backend = RemoteBackend(os.environ[URL], os.environ.get(TOKEN, ""), os.environ.get(CERTIFICATE, ""), packages)
    backend.check()
    return backend
