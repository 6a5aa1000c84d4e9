"""`agentrl train`: one run from its first task to its report."""

from __future__ import annotations

from agentrl.cli.flags import ENV, parse
from agentrl.config.loading import load


def run(words: list[str]) -> int:
    """Train as the flags say."""
    config = load(*parse("train", "Train a model in an environment.", words, ENV))
    from agentrl.metrics.timer import process_began
    from agentrl.training.launch import train

    train(config, process_began())
    return 0
