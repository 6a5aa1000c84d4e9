"""`agentrl config`: the configuration as a TOML file that `--config` takes again."""

from __future__ import annotations

import textwrap

from agentrl.cli.flags import ENV, parse
from agentrl.config.loading import to_toml
from agentrl.config.machine import detect
from agentrl.config.resolve import choose, idle_keys
from agentrl.env.config import load_config
from agentrl.env.registry import resolve


def run(words: list[str]) -> int:
    """Print every key with its value for this machine, where the value comes from, and its meaning."""
    settings = parse("config", "Print the configuration that the flags of `agentrl train` would give.", words, ENV)
    plan = choose(settings.config, detect())
    env = load_config(resolve(plan.config.env.name), plan.config.env.options)
    print(textwrap.fill(plan.explanation, 118, initial_indent="# ", subsequent_indent="# "))
    print(to_toml(plan.config, settings, env, idle_keys(plan.config)), end="")
    return 0
