"""`agentrl train`: one run from its first task to its report."""

from __future__ import annotations

from agentrl.cli.ending import exit_code
from agentrl.cli.flags import parse
from agentrl.machine import detect
from agentrl.plan import choose


def run(words: list[str]) -> int:
    """Train as the flags say."""
    settings = parse("train", "Train a model in an environment.", words)
    plan = choose(settings.config, detect())
    print(f"{plan.explanation}\n", flush=True)
    from agentrl.run.loop import train

    return exit_code(lambda: train(plan.config))
