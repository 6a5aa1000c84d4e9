"""`agentrl config`: the configuration as a TOML file that `--config` takes again."""

from __future__ import annotations

import textwrap

from agentrl.cli.flags import parse
from agentrl.machine import detect
from agentrl.plan import choose
from agentrl.settings import to_toml


def run(words: list[str]) -> int:
    """Print every key with its value for this machine, where the value comes from, and its meaning."""
    settings = parse("config", "Print the configuration that the flags of `agentrl train` would give.", words)
    plan = choose(settings.config, detect())
    print(textwrap.fill(plan.explanation, 118, initial_indent="# ", subsequent_indent="# "))
    print(to_toml(plan.config, settings), end="")
    return 0
