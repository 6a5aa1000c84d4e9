"""`agentrl config`: the configuration as a TOML file that `--config` takes again."""

from __future__ import annotations

import textwrap

from agentrl.cli.flags import ENV, parse
from agentrl.env.registry import resolve
from agentrl.env.settings import load_config
from agentrl.machine import detect
from agentrl.plan import choose, idle_keys
from agentrl.settings import to_toml


def run(words: list[str]) -> int:
    """Print every key with its value for this machine, where the value comes from, and its meaning."""
    settings = parse("config", "Print the configuration that the flags of `agentrl train` would give.", words, ENV)
    plan = choose(settings.config, detect())
    env = load_config(resolve(plan.config.env.name), plan.config.env.options)
    print(textwrap.fill(plan.explanation, 118, initial_indent="# ", subsequent_indent="# "))
    print(to_toml(plan.config, settings, env, idle_keys(plan.config)), end="")
    return 0
