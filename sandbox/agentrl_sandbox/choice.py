"""Which backend: the best one that this machine has, or the one that was asked for, or a refusal with the fix."""

from __future__ import annotations

import difflib
import os

from agentrl_sandbox.errors import UnavailableError
from agentrl_sandbox.types import Backend

NAMES = ("bubblewrap", "docker", "process", "remote")
SAFE = ("bubblewrap", "docker")  # best first; `process` is no boundary, so nobody gets it without asking
URL, TOKEN = "AGENTRL_SANDBOX_URL", "AGENTRL_SANDBOX_TOKEN"


def choose(name: str = "auto") -> Backend:
    """The backend of this name; `auto`: the server that AGENTRL_SANDBOX_URL names, else the best of this machine.

    Raises UnavailableError that says what is missing and what to do.
    """
    if name == "auto":
        return _make("remote") if os.environ.get(URL) else _best()
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UnavailableError(f"unknown sandbox backend {name!r}.{hint} Known: auto, {', '.join(NAMES)}.")
    return _make(name)


def _best() -> Backend:
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
    return RemoteBackend(os.environ[URL], os.environ.get(TOKEN, ""))
