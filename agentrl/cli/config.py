"""`agentrl config`: print the configuration as a TOML file that `--config` accepts."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from pydantic import BaseModel

from agentrl.algorithms.configured import configured_algorithm
from agentrl.cli.flags import ENV, parse
from agentrl.cluster.hardware import hardware
from agentrl.config.loading import read
from agentrl.config.resolve import explain
from agentrl.config.schema import EnvSection
from agentrl.config.toml import to_toml
from agentrl.config.validate import idle_keys, idle_without_critic
from agentrl.env.config import env_config
from agentrl.env.registry import is_address, resolve
from agentrl.packaging.added import with_interpreters
from agentrl.planning.fit import fitted_run


def run(words: list[str]) -> int:
    """Print every key with its value for this machine, the source of the value, and its meaning."""
    settings = read(*parse("config", "Print the configuration of `agentrl train` with the same flags.", words, ENV))
    machine = hardware()
    config = with_interpreters(fitted_run(settings.config, machine, may_download=False))
    algorithm = configured_algorithm(config)
    envs = [_checked(env) for env in config.env]
    plugins: dict[str, Sequence[BaseModel | None]] = {"env": envs, "algorithm": [algorithm.config]}
    idle = idle_keys(config) | {f"algorithm.{key}": needs for key, needs in algorithm.idle_keys().items()}
    if "values" not in algorithm.requirements.columns:
        idle |= idle_without_critic(config)
    print(textwrap.fill(explain(config, machine), 118, initial_indent="# ", subsequent_indent="# "))
    print(to_toml(config, settings, plugins, idle), end="")
    return 0


def _checked(env: EnvSection) -> BaseModel | None:
    """Return the environment's own keys, None if only the place where it runs knows them."""
    if is_address(env.name):
        from agentrl.hosting.sockets import name_at  # most configurations need no connection

        name_at(env.name)
        return None
    return None if env.python else env_config(resolve(env.name), env.options)
