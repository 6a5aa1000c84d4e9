"""Inspection of an environment before a run: what it lacks, what its author should know, and its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentrl.env.attributes import check_made
from agentrl.env.base import Env
from agentrl.env.config import env_config
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.dry_run.completeness import check_complete
from agentrl.env.dry_run.process import dry_run
from agentrl.env.dry_run.verdict import DryRunRequest, DryRunResult
from agentrl.env.registry import resolve
from agentrl.env.roles import roles_of
from agentrl.plugins.tracebacks import call_author
from agentrl.records.manifest import PluginSource, plugin_source


@dataclass(frozen=True, slots=True)
class Inspection:
    """An environment that can run: notes for the user, the text of its first prompt, and a function for its source."""

    notes: tuple[str, ...]
    prompt: str
    source: Callable[[], PluginSource]
    roles: Mapping[str, str]
    """What each of its roles is for."""
    endless: tuple[str, ...] = ()
    """The inspected splits whose tasks are endless, as far as it is known."""


def make(name: str, options: Mapping[str, Any]) -> Env:
    """Make one object of an environment. Raises ConfigError."""
    env_class = resolve(name)
    settings = env_config(env_class, options)
    env: Env = call_author(f"{env_class.__name__} cannot be made", env_class, settings, at=env_class.__init__)
    call_author(f"{env_class.__name__} cannot be made", check_made, env, settings)
    return env


def inspect(request: DryRunRequest, has_reward_models: bool) -> Inspection:
    """Check an environment in this interpreter and play an episode of it; without splits, none is played.

    Raises ConfigError if it cannot be used.
    """
    env = make(request.name, request.options)
    check_complete(EnvDriver(env, request.max_turns), has_reward_models=has_reward_models)
    notice = str(call_author(f"{type(env).__name__} cannot run here", env.preflight) or "")
    result = dry_run(request) if request.splits else DryRunResult()
    roles = {name: (role.__doc__ or "").strip().partition("\n")[0] for name, role in roles_of(type(env)).items()}
    source = partial(plugin_source, request.name, type(env))
    return Inspection((notice, *result.notes), result.prompt, source, roles, result.endless)
