"""Choice of a backend: the named one or the best of this machine, or an error that says how to get one."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from functools import cache

from agentrl_sandbox.errors import PackagesError, UnavailableError
from agentrl_sandbox.packages import checked
from agentrl_sandbox.types import Backend

NAMES = ("bubblewrap", "docker", "process", "remote")
SAFE = ("bubblewrap", "docker")  # best first; `process` is no security boundary, so it has to be named
URL, TOKEN, CERTIFICATE = "AGENTRL_SANDBOX_URL", "AGENTRL_SANDBOX_TOKEN", "AGENTRL_SANDBOX_CERTIFICATE"


def choose(name: str = "auto", packages: Sequence[str] = ()) -> Backend:
    """Return the backend of this name; `auto`: the server at AGENTRL_SANDBOX_URL if set, else the best of this machine.

    Its programs can import `packages` (names of installed distributions) and their requirements.
    Raises UnavailableError that says what is missing and how to fix it.
    """
    packages = checked(packages)
    if name == "auto":
        return _make("remote", packages) if os.environ.get(URL) else best(packages)
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UnavailableError(f"unknown sandbox backend {name!r}.{hint} Known: auto, {', '.join(NAMES)}.")
    return _make(name, packages)


def describe(name: str = "auto", packages: Sequence[str] = ()) -> str:
    """Describe the backend of this name and what enforces its limits; raises the errors of `choose`."""
    packages = checked(packages)
    backend = _cached(name, packages)
    return f"sandboxes by {backend.name} ({backend.describe()}){' with ' if packages else ''}{', '.join(packages)}"


@cache
def _cached(name: str, packages: tuple[str, ...]) -> Backend:
    """Return the same backend for every call, since docker's keeps a connection open."""
    return choose(name, packages)


def best(packages: tuple[str, ...] = ()) -> Backend:
    """Return the best local backend; UnavailableError if none works."""
    reasons = []
    for name in SAFE:
        try:
            return _make(name, packages)
        except PackagesError:  # the backend works; another one would lack the packages too
            raise
        except UnavailableError as error:
            reasons.append(str(error))
    raise UnavailableError(
        f"no sandbox backend works here. {' '.join(reasons)} Or choose 'process', which is no security boundary."
    )


def _make(name: str, packages: tuple[str, ...]) -> Backend:
    """Import a backend when it is chosen, since docker and httpx may not be installed."""
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
            f"remote: {URL} is not set. Set {URL} and {TOKEN} to the address and token of the sandbox server"
        )
    if "@" in os.environ[URL]:
        raise UnavailableError(
            f"remote: {URL} has a user name or password, which would be shown: leave them out. {TOKEN} is the token"
        )
    backend = RemoteBackend(os.environ[URL], os.environ.get(TOKEN, ""), os.environ.get(CERTIFICATE, ""), packages)
    backend.check()
    return backend
