"""Where an environment runs: in this process, or in another interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from agentrl.env.driver.loop import run_on_private_loop
from agentrl.env.dry_run.verdict import DryRunRequest
from agentrl.env.registry import is_address
from agentrl.errors import AgentRLError, ConfigError
from agentrl.hosting.child import Child
from agentrl.hosting.host import HostedEnv
from agentrl.hosting.inspection import Inspection, inspect
from agentrl.hosting.remote import RemoteEnv
from agentrl.hosting.wire import converted
from agentrl.plugins.files import PICKLE
from agentrl.records.manifest import PluginSource


def environment(
    name: str, options: Mapping[str, Any], python: Path | None = None, restarts: int = 0, *, is_apart: bool = False
) -> HostedEnv | RemoteEnv:
    """Return an environment with its `--env.*` keys: in this process, in the interpreter `python`, or at an address.

    With `is_apart` it is in a process of its own, which it may end.
    """
    if is_address(name):
        return _at(name, options, python, restarts)
    if is_apart and python is None:
        return RemoteEnv(partial(Child.start, None), name, options, restarts)
    return HostedEnv.named(name, options) if python is None else _in(python, name, options, restarts)


def _in(python: Path, name: str, options: Mapping[str, Any], restarts: int = 0) -> RemoteEnv:
    if name.endswith(PICKLE):
        raise ConfigError("a class of a notebook cannot run in another interpreter (env.python): write it into a file")
    return RemoteEnv(partial(Child.start, python), name, options, restarts)


def _at(address: str, options: Mapping[str, Any], python: Path | None, restarts: int = 0) -> RemoteEnv:
    from agentrl.hosting.sockets import PATIENCE_S, SocketConnection, name_at  # few runs need them

    if python is not None:
        raise ConfigError(f"env.python {python}: {address} has the interpreter of its server; leave env.python out")

    connect = partial(SocketConnection.open, address, PATIENCE_S if restarts else 0.0)
    return RemoteEnv(connect, name_at(address), options, restarts)


def inspect_env(request: DryRunRequest, python: Path | None, *, has_reward_models: bool) -> Inspection:
    """Check an environment where it will run, and play an episode of it; without splits, none is played.

    Raises ConfigError if it cannot be used.
    """
    if is_address(request.name):
        remote = _at(request.name, request.options, python)
    elif python is not None:
        remote = _in(python, request.name, request.options)
    else:
        return inspect(request, has_reward_models)
    return run_on_private_loop(_inspected(remote, request, has_reward_models))


async def _inspected(env: RemoteEnv, request: DryRunRequest, has_reward_models: bool) -> Inspection:
    more = {"splits": list(request.splits), "seed": request.seed, "max_turns": request.max_turns}
    try:
        link = await env.link()
        found = await link.peer.call("inspect", has_reward_models=has_reward_models, **more)
    except ConfigError:
        raise
    except AgentRLError as error:
        raise ConfigError(str(error)) from error
    finally:
        await env.close()
    source, roles = converted(found["source"], PluginSource), converted(found["roles"], dict[str, str])
    endless = tuple(found.get("endless", ()))  # a server of an earlier version does not say
    return Inspection(tuple(found["notes"]), str(found["prompt"]), lambda: source, roles, endless)
