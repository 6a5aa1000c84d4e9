"""`agentrl eval`: the score of a model on held-out tasks."""

from __future__ import annotations

from agentrl.cli.ending import exit_code
from agentrl.cli.flags import parse
from agentrl.machine import detect
from agentrl.plan import choose


def run(words: list[str]) -> int:
    """Evaluate as the flags say."""
    settings = parse("eval", "Score a model (--model: a folder, a checkpoint or a hub id) on held-out tasks.", words)
    plan = choose(settings.config, detect())
    from agentrl.run.loop import evaluate

    return exit_code(lambda: evaluate(plan.config))
