"""What an environment offers: its keys, limits, rewards, tools and tasks, read from its class and one episode."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, get_args

from agentrl.config.keys import meaning_of
from agentrl.config.values import toml_text
from agentrl.env import Env, EnvDriver, Limits, Start, announced, close_shared
from agentrl.env.rewards import Reward, rewards_of
from agentrl.errors import AgentRLError
from agentrl.hosting.inspection import make
from agentrl.plugins.registry import Announced
from agentrl.plugins.tracebacks import call_author
from agentrl.records.manifest import PluginSource, plugin_source, source_path
from agentrl.types import HELD_OUT, TRAIN, Scope


@dataclass(frozen=True, slots=True)
class Listed:
    """An announced environment, as `agentrl env list` shows it."""

    announced: Announced
    summary: str
    machine: str
    """What it found on this machine, or what it needs."""


@dataclass(frozen=True, slots=True)
class Key:
    """One `--env.*` key."""

    name: str
    type: str
    value: str
    """As a flag takes it; empty for None, which no flag can give."""
    meaning: str


@dataclass(frozen=True, slots=True)
class Description:
    """An environment with one configuration, as `agentrl env show` shows it."""

    source: PluginSource
    path: Path
    target: str
    summary: str
    machine: str
    keys: tuple[Key, ...]
    limits: Limits
    rewards: tuple[Reward, ...]
    """Empty if `score` computes them."""
    sizes: dict[str, int | None]
    """Number of tasks of each split; None if they are endless."""
    task_id: str
    start: Start
    """First messages of the first task for training, and the tools of its episode."""


def listed() -> Iterator[Listed]:
    """Yield every announced environment, by name. Imports their packages."""
    for name, item in sorted(announced().items()):
        yield Listed(item, _summary(item.distribution), _machine(name))


async def describe(name: str, options: Mapping[str, Any]) -> Description:
    """Describe the environment `name` with these `--env.*` keys; starts an episode of its first task for training.

    Raises ConfigError for a name, key or class that cannot be used, and EnvError if its tasks or its setup raise.
    """
    env = make(name, options)
    machine = call_author("preflight failed", env.preflight) or "no requirements"
    driver = EnvDriver(env)
    try:
        sizes = {split: await driver.size(split) for split in (TRAIN, HELD_OUT)}
        task = await driver.task(TRAIN, 0)
        start = await driver.reset(task)
    finally:
        await driver.close()
        await close_shared()
    kind, source = type(env), plugin_source(name, type(env))
    rewards = tuple(reward for scope in get_args(Scope) for reward in rewards_of(kind, scope))
    summary = (inspect.getdoc(kind) or _summary(source.distribution)).partition("\n\n")[0]
    return Description(
        source, source_path(name, kind), f"{kind.__module__}:{kind.__qualname__}", summary, str(machine),
        tuple(_keys(env)), env.limits, rewards, sizes, task.id, start,
    )  # fmt: skip


def _machine(name: str) -> str:
    """Return what an environment says about this machine, or why it cannot run here."""
    try:
        return str(call_author("preflight failed", make(name, {}).preflight) or "no requirements")
    except AgentRLError as error:
        return str(error).partition("\n")[0]


def _keys(env: Env) -> Iterator[Key]:
    for name, info in type(env.config).model_fields.items():
        kind = inspect.formatannotation(info.annotation).replace("typing.", "")
        value = getattr(env.config, name)
        yield Key(f"--env.{name}", kind, "" if value is None else toml_text(value), meaning_of(info))


def _summary(distribution: str) -> str:
    """Return the one-line description of an installed distribution, '' if there is none."""
    try:
        return str(metadata(distribution).json.get("summary", "")) if distribution else ""
    except PackageNotFoundError:
        return ""
